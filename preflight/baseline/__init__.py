"""What a good report teaches to expect (learn.py), and how two reports differ (diff.py). Pure."""
