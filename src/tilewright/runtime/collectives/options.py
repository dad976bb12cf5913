"""The option of every device URI that says where channels meet: `?collectives=mpi`.

Called by the registry of drivers.
"""

from __future__ import annotations

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.knobs import COLLECTIVES
from tilewright.runtime.collectives.process_channels import PROCESS_CHANNELS
from tilewright.runtime.hal.channel import ChannelProvider
from tilewright.runtime.hal.driver_registry import CHANNEL_OPTION


def create_provider(choice: str | None) -> ChannelProvider:
    """The provider that an option, or else the knob, names: `process` or `mpi`.

    Raises: UserError for another word; DeviceError when the option asks for MPI and there is none.
    """
    if choice not in (None, "process", "mpi"):
        raise UserError(
            f"got '{choice}', expected process or mpi",
            location=f"device option '{CHANNEL_OPTION}'",
        )
    if (choice or COLLECTIVES.get()) == "process":
        return PROCESS_CHANNELS
    with LATE_IMPORTS:  # few devices need it
        from tilewright.runtime.collectives.mpi_channels import MpiChannels  # noqa: PLC0415

    provider = MpiChannels()
    if choice == "mpi":
        provider.query_default_rank_and_count()  # now: who asks for MPI wants to hear of trouble
    return provider
