"""Numbers as people write them, in tables of pages and of the report."""


def number_text(value: float, digits: int = 1) -> str:
    """A number as people write it: 12,346 and −0.3, never -0.0."""
    if abs(value) >= 100:
        digits = 0 if abs(value) >= 1000 else min(digits, 1)
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def signed_text(value: float, digits: int = 1) -> str:
    """+1.2 and −1.2; what rounds to nothing has no sign."""
    shown = number_text(value, digits)
    return f"+{shown}" if value > 0 and float(shown.replace(",", "")) else shown
