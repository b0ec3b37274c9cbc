"""Keeping secrets out of logs: values of secret-looking variables, and passwords in addresses."""

import os
import re

SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|AUTH_STRING|ACCESS_KEY|API_KEY|CONNECTION_URL|CONNECTION_STRING", re.I
)
IN_ADDRESS = re.compile(r"(\w[\w+.-]*://)[^\s/@]+@")
"""user:password@ in front of a host."""
MIN_LENGTH = 6
"""Shorter values would blank out ordinary words."""
BLANK = "***"


def redact(text: str) -> str:
    """The text without passwords in addresses and without the values of this process's secrets."""
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= MIN_LENGTH:
            for part in {value, value.partition(":")[2]}:
                if len(part) >= MIN_LENGTH:
                    text = text.replace(part, BLANK)
    return IN_ADDRESS.sub(rf"\1{BLANK}@", text)
