"""Errors of Determined that user code may catch."""


class InvalidExperimentException(BaseException):
    """The trial's code breaks a rule of the trainer. It was a BaseException there, and so it is here."""


class InternalException(Exception):
    pass


class InvalidCheckpointException(Exception):
    pass


class InvalidConfigurationException(Exception):
    pass


class InvalidDataTypeException(Exception):
    pass


class InvalidModelException(Exception):
    pass
