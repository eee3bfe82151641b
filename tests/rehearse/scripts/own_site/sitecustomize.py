"""The user's own: it must run, whatever else is put in front of it."""

import os

os.environ["OWN_SITE"] = "was here"
