"""Settings every test shares: no hub, no accidental cluster, few threads."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.pop("RAY_ADDRESS", None)
