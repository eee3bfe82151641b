"""From Observations to a Report: judging, folding of consequences, the verdict. Pure."""
