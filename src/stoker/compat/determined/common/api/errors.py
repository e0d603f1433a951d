"""`determined.common.api.errors`: stoker's own errors under the names that code catches."""

from stoker.errors import ConflictError as APIException
from stoker.errors import NotFoundError as NotFoundException
from stoker.errors import StokerError as BadRequestException

__all__ = ["APIException", "BadRequestException", "NotFoundException"]
