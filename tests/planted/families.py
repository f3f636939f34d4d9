"""Families of faults that systems of this kind have really had, and the tests of the right value."""

FAMILIES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "Recovery replaces Full that a running request has locked, or returns early and claims what it left.",
        (
            "test_01_a_locked_node_keeps_its_full_slots_however_often_it_is_healed",
            "test_B11_healing_under_a_full_lock_keeps_the_locked_full_and_takes_the_swa",
            "test_replacing_locked_full_is_seen_by_the_reads_and_by_the_audit",
        ),
    ),
    2: (
        "Tokens whose SWA is long gone enter the tree as live.",
        ("test_02_what_a_running_request_publishes_is_dead_before_its_frontier",),
    ),
    3: (
        "A Full leaf is refused because its SWA is out of the window.",
        ("test_B03_a_leaf_without_any_swa_stays_as_a_tombstone",),
    ),
    4: (
        "An insert accepts more than the next match.",
        (
            "test_04_what_a_commit_offers_beyond_the_match_is_undone_and_told_as_an_anomaly",
            "test_04_a_match_below_the_protected_length_is_a_broken_invariant_and_changes_nothing",
            "test_04_with_skip_a_request_keeps_all_its_own_slots_where_nothing_of_it_would_match",
            "test_04_with_skip_a_commit_ends_at_the_locked_tombstone_where_its_head_is_usable",
        ),
    ),
    5: (
        "The frontier comes too near the end where pages are long or the window is no multiple of them.",
        (
            "test_05_after_sliding_a_finished_request_matches_to_its_last_whole_page",
            "test_E06_with_pages_sliding_leaves_a_window_before_the_last_whole_page",
        ),
    ),
    6: (
        "Frontier and inserted key disagree by a page.",
        ("test_06_what_is_published_is_dead_up_to_the_frontier_and_live_from_there_on",),
    ),
    7: (
        "The last page, which is still written, is cached.",
        ("test_07_the_last_page_of_a_running_request_is_not_published",),
    ),
    8: (
        "The protected length falls inside a node, and what is freed holds what was just adopted.",
        ("test_08_a_protected_length_inside_a_node_leaves_its_head_alone",),
    ),
    9: (
        "A waiting request's row, node, length and lease do not change together.",
        ("test_09_a_waiting_requests_row_node_length_and_lease_change_as_one_event",),
    ),
    10: (
        "An unfinished request is committed twice without a new page in between.",
        ("test_10_committing_twice_without_a_new_page_inserts_nothing",),
    ),
    11: (
        "A tombstone keeps a mapping, through which somebody else's SWA is freed.",
        ("test_11_a_tombstone_maps_to_nothing_and_its_recovery_frees_no_swa_of_somebody_else",),
    ),
    12: (
        "A grouped free is resolved when the group ends.",
        (
            "test_12_a_free_of_an_earlier_step_frees_what_it_named_then",
            "test_12_a_tombstone_recovered_and_lost_again_in_one_transaction_frees_each_page_once",
            "test_N2_what_a_caller_frees_is_not_to_be_had_before_the_commit",
        ),
    ),
    13: (
        "Ending a group twice frees twice.",
        ("test_13_frees_of_nested_groups_take_effect_once_when_the_outermost_ends",),
    ),
    14: (
        "A freed page clears one entry of the mapping.",
        ("test_14_one_page_freed_clears_all_its_entries_and_no_others",),
    ),
    15: (
        "A recycled page brings its old mapping along.",
        ("test_a_recycled_page_brings_no_mapping_along",),
    ),
    16: (
        "The padding page enters the free set.",
        (
            "test_the_padding_page_is_never_handed_out",
            "test_it_hands_out_each_page_once_and_never_the_padding",
        ),
    ),
    17: (
        "A page is named twice in one call.",
        ("test_what_no_state_could_make_valid_is_refused_by_its_own_error",),
    ),
    18: (
        "Mapping rows change that a launched forward still reads.",
        (
            "test_18_every_row_that_a_launched_batch_reads_has_its_swa",
            "test_the_mirror_changes_at_the_commit_and_not_before",
        ),
    ),
    19: (
        "A release without the receipt takes the locks of others.",
        (
            "test_a_release_needs_the_receipt",
            "test_a_second_release_is_stale_and_so_is_the_early_release_after_it",
        ),
    ),
    20: (
        "An early SWA release is counted twice.",
        (
            "test_20_an_swa_lock_given_up_early_is_not_given_up_again",
            "test_20_a_lock_that_a_commit_moved_behind_the_frontier_is_given_up_by_the_next_slide",
        ),
    ),
    21: (
        "A split forgets a count, or moves the SWA boundary.",
        (
            "test_21_a_split_leaves_both_halves_with_both_counts_and_the_reach_where_it_was",
            "test_21_locks_of_different_reach_can_be_given_back_in_any_order",
        ),
    ),
    22: (
        "The matched node itself is not locked, or a count goes below zero.",
        ("test_22_the_matched_node_itself_is_locked_and_so_is_the_way_to_the_root",),
    ),
    23: (
        "Resuming takes a lock without giving the old one back.",
        ("test_23_resuming_again_and_again_leaves_one_lock_and_closing_leaves_none",),
    ),
    24: (
        "State of an admission survives its refusal; waiting requests are nobody's.",
        ("test_24_a_refused_admission_leaves_the_waiting_request_as_it_was",),
    ),
    25: (
        "A hit refreshes too little or too much.",
        (
            "test_25_a_hit_refreshes_the_window_and_the_end_and_nothing_older",
            "test_25_stamps_rise_from_the_root_to_the_leaf_within_one_operation",
            "test_25_an_insert_refreshes_what_it_finds_like_a_hit",
            "test_25_a_parent_that_becomes_a_leaf_takes_the_larger_stamp_over",
            "test_N1_swa_outside_every_window_goes_before_older_swa_inside_one",
            "test_25_swa_inside_a_window_of_a_place_further_down_is_inside_and_goes_by_its_stamp",
        ),
    ),
    26: (
        "The cascade runs for one kind of eviction only, or takes what is held.",
        ("test_26_a_cascade_follows_either_eviction_and_stops_at_a_lock",),
    ),
    27: (
        "Callers trust what they asked for and not what was freed.",
        (
            "test_27_an_eviction_returns_what_became_free_the_cascade_included",
            "test_C12_the_tokens_reported_are_those_that_became_free",
        ),
    ),
    28: (
        "Names of two tenants, joined to strings, meet.",
        ("test_28_names_that_would_join_to_the_same_string_do_not_meet",),
    ),
    29: (
        "Identity by hash alone.",
        (
            "test_29_one_other_token_anywhere_is_another_prefix",
            "test_29_what_differs_in_more_than_the_hash_of_a_page_is_told_apart",
        ),
    ),
    30: (
        "The namespace is missing from an event's hash or from the unlock.",
        (
            "test_30_an_unlock_in_one_namespace_leaves_the_other_locked",
            "test_replay_reproduces_every_digest_of_the_cache",
        ),
    ),
    31: (
        "A removal that no event tells.",
        ("test_31_every_node_that_is_gone_was_told_by_an_event_of_its_own",),
    ),
    32: (
        "Sequence numbers that a reader passes before they appear.",
        (
            "test_recorders_on_threads_keep_dense_journals_and_readers_never_see_a_hole",
            "test_a_family_of_faults_has_the_right_value",
        ),
    ),
    33: (
        "A consumer revives what it had seen removed.",
        (
            "test_while_the_journal_grows_every_state_is_right_and_listeners_hear_each_transaction_once",
            "test_a_fold_refuses_gaps_and_goes_on_no_more",
            "test_a_family_of_faults_has_the_right_value",
        ),
    ),
    34: (
        "Sequences begin at 1 again after a restart.",
        (
            "test_an_anchor_with_another_hash_or_of_another_journal_is_a_break",
            "test_a_family_of_faults_has_the_right_value",
        ),
    ),
    35: (
        "Time is the order, or what is hashed is not what is stored.",
        (
            "test_the_hash_of_a_transaction_is_that_of_docs_format",
            "test_a_family_of_faults_has_the_right_value",
        ),
    ),
    36: (
        "Two appenders fork the chain.",
        ("test_two_writers_cannot_fork_the_chain_of_one_journal",),
    ),
    37: (
        "A driver that begins transactions late.",
        (
            "test_a_writer_holds_the_write_lock_from_the_start_of_its_transaction",
            "test_a_rollback_takes_back_released_savepoints_and_new_tables",
        ),
    ),
    38: (
        "The write-ahead log grows for ever.",
        (
            "test_what_lies_on_the_disk_stays_below_the_limit_and_a_constant_log_included",
            "test_a_family_of_faults_has_the_right_value",
        ),
    ),
    39: (
        "A migration takes the children of a table along.",
        ("test_rows_and_their_children_survive_the_way_up_and_down",),
    ),
    40: (
        "A queue drops silently, or a crash loses what nobody mentions.",
        (
            "test_a_full_queue_makes_append_wait_and_loses_nothing",
            "test_durable_seq_follows_the_disk_and_last_seq_the_queue",
            "test_a_killed_program_loses_nothing_that_was_durable",
        ),
    ),
    41: (
        "The reducer reads a clock, the order of a dictionary or the name of a class.",
        (
            "test_replaying_twice_gives_the_same_state",
            "test_every_canonical_fact_is_in_it",
            "test_a_database_of_every_format_replays",
        ),
    ),
    42: (
        "A full walk where an incremental check belongs.",
        ("test_a_family_of_faults_has_the_right_value",),
    ),
}
"""By number: what goes wrong, and the names of the tests that have the right value of it."""
