"""Which flow builds which family."""

from accelc.boards.board import Family
from accelc.boards.build.family import FamilyFlow


def flow_for(family: Family) -> FamilyFlow:
    """The flow of a family; imports no other family's."""
    if family is Family.ICE40:
        from accelc.boards.build.ice40 import Ice40Flow

        return Ice40Flow()
    if family is Family.ECP5:
        from accelc.boards.build.ecp5 import Ecp5Flow

        return Ecp5Flow()
    from accelc.boards.build.gowin import GowinFlow

    return GowinFlow()
