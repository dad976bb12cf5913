"""How participants of collective operations meet: in one process, across processes, on GPUs.

Stands behind the nouns `Channel`, `HostGroup` and `ChannelProvider` of the HAL:
`process_channels` lets devices of one process meet, `mpi_channels` (with its group, its steps and
its library) processes over MPI; `nccl_library` and `nccl_calls` are what GPUs use, in the streams of
the driver cuda.  `arithmetic` and `agreement` are what operations compute and whether ranks want the
same; `options` picks a provider for the URI of a device.

Not here: channels as devices and programs see them (`hal.channel`), recorded collectives (`hal.local`,
`drivers.cuda`).
"""
