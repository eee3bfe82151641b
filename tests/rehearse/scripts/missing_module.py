"""What it imports is not installed: it ends before torch is reached."""

import planted

planted.now()
import not_installed_anywhere  # noqa: E402  # <- here

print(not_installed_anywhere)
