"""What the generator cannot do. The task turns it into the line that a user of a command sees."""


class GenerationError(ValueError):
    pass
