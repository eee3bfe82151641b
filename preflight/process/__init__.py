"""Functions run in processes of their own with hard deadlines. Knows nothing of checks."""
