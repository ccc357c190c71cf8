"""The error a user of the fairseq commands sees. Library code below the glue raises ValueError."""


class UsageError(SystemExit):
    """Ends the command with one line on stderr and exit code 1.

    It is no `Exception`: fairseq wraps every exception that is raised while a checkpoint loads
    into "please ensure that the architectures match", which would hide the reason.
    """

    def __init__(self, message: str):
        super().__init__(f"sparse_fairseq: error: {message}")
