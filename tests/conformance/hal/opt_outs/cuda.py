"""What `cuda` does not support."""

REASONS: dict[str, str] = {
    "test_kernels_see_lengths_and_all_constants": "kernels of a GPU get addresses without lengths",
    "test_reductions_of_every_type": "collectives between GPUs need NCCL, which is not called yet",
    "test_every_kind_moves_what_it_should": "collectives between GPUs need NCCL, which is not called yet",
    "test_sends_and_receives_pair_up_in_order": "collectives between GPUs need NCCL, which is not called yet",
    "test_commands_before_and_after_keep_their_order": "collectives between GPUs need NCCL, which is not called yet",
    "test_ranks_on_threads_meet_many_times": "collectives between GPUs need NCCL, which is not called yet",
    "test_a_rank_that_fails_fails_the_others": "collectives between GPUs need NCCL, which is not called yet",
    "test_ranks_that_disagree_are_told": "collectives between GPUs need NCCL, which is not called yet",
    "test_channels_split_by_color_and_key": "collectives between GPUs need NCCL, which is not called yet",
    "test_wrong_collectives_are_refused_when_recorded": "collectives between GPUs need NCCL, which is not called yet",
    "test_alone_a_collective_is_a_copy": "collectives between GPUs need NCCL, which is not called yet",
}
