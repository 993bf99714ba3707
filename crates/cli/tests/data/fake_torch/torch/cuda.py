"""No GPU here."""


def is_available():
    return False
