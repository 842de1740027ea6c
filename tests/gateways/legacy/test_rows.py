"""Rules of the gateway for the legacy API, each with its test: by the rows of its design."""

from __future__ import annotations

import importlib

import pytest

ROWS = {
    # the rules of the old API
    "ids are grouped by class": "actor_ids.test_ids_are_grouped_by_class_and_not_in_the_order_of_the_parameters",
    "counts have zeros": "actor_ids.test_classes_without_actors_are_counted",
    "unnamed actors get names": "actor_ids.test_actors_without_names_get_one",
    "one application serves many actors": "agent.test_one_server_plays_all_actors",
    "endpoints of that time": "hook.test_endpoints_of_that_time",
    "endpoints in a file of that time": "profile_file.test_a_project_file_of_that_time_is_read_as_it_is",
    "actions come in the order of the ids": "environment.test_old_agents_in_an_old_environment",
    "a reward is a mean": "rewards.test_round_trip",
    "feedback for an older tick": "old_servers.test_feedback_for_an_older_tick_changes_only_the_data_log",
    "feedback for a tick that never was": "client.test_feedback_for_ticks_that_never_were_reaches_nobody",
    "an actors_map that does not fit": "snapshots.test_sets_that_do_not_fit",
    "reply_with_snapshot": "environment.test_a_trial_that_an_old_environment_ends",
    "session_id": "client.test_feedback_is_the_session_s",
    "the end is told to who may know": "states.test_whatever_comes_the_end_is_told_once_to_who_may_know",
    "states": "states.test_every_pair",
    # old clients
    "GetTrialParams": "client.test_get_trial_params_are_those_of_the_profile",
    "GetTrialParams: from the platform": "client.test_get_trial_params_are_otherwise_those_of_the_platform",
    "Start": "client.test_start_tells_the_actor_the_counts_its_config_and_the_first_observation",
    "Start: configuration and user": "client.test_start_carries_the_config_and_the_user",
    "Start: nobody plays": "client.test_without_a_client_a_trial_runs_by_itself",
    "Start: its caller goes": "client.test_a_start_that_its_client_leaves_ends_the_trial",
    "human_config": "client.test_start_tells_the_actor_the_counts_its_config_and_the_first_observation",
    "Start: several humans": "client.test_the_starter_of_several_may_wait_for_the_first_observation",
    "Join": "client.test_two_clients_in_one_trial",
    "Join: somebody else's trial": "client.test_a_trial_of_somebody_else_can_be_joined",
    "Action": "client.test_action_brings_the_next_observation_until_the_trial_is_over",
    "Action: reward and messages": "client.test_a_client_is_rewarded_with_its_reply",
    "Action: busy": "client.test_an_action_is_refused_as_busy_while_one_is_answered",
    "Action: repeated": "client.test_a_repeated_action_counts_once",
    "ActionStream": "client.test_an_action_stream_answers_in_order_and_ends_with_the_trial",
    "End": "client.test_end_is_orderly_and_answered_at_once",
    "End: after the end": "client.test_end_after_the_end_is_accepted_and_later_unknown",
    "Heartbeat and inactivity": "client.test_heartbeats_keep_a_trial_alive",
    "GiveFeedback": "client.test_feedback_of_a_client_is_a_reward",
    "GiveFeedback: after the end": "client.test_feedback_for_ticks_that_never_were_reaches_nobody",
    "SendMessage": "client.test_messages_of_a_client",
    "Version": "client.test_version_is_of_the_0_3_family",
    "an unknown trial": "client.test_an_unknown_trial",
    "the final answer is kept": "client.test_the_final_answer_is_given_as_often_as_it_is_asked_for",
    "a hard end": "client.test_a_hard_end_answers_with_the_last_observation",
    "max_steps": "client.test_max_steps_give_the_waiting_client_its_final_observation",
    # old agents
    "Decide": "agent.test_a_trial_with_an_old_agent_and_new_ones",
    "Decide: feedbacks and messages first": "agent.test_feedbacks_and_messages_belong_to_the_tick_of_the_decision",
    "Reward before the next Decide": "agent.test_rewards_and_messages_reach_the_agent_before_its_next_decision",
    "a reward for every tick": "agent.test_a_reward_for_every_tick_on_request",
    "final data": "agent.test_the_final_observation_is_in_the_final_data_and_needs_no_decision",
    "a failed Decide": "agent.test_an_agent_that_fails_to_decide_leaves_the_trial",
    "a failed Decide: empty action": "agent.test_with_empty_actions_an_agent_that_fails_goes_on",
    # old environments
    "Update": "environment.test_a_trial_that_an_old_environment_ends",
    "Update: rewards and messages first": "environment.test_feedbacks_and_messages_belong_to_the_step_that_is_finished",
    "Update: an absent actor": "environment.test_an_actor_that_does_not_act_is_an_empty_action",
    "no call for the final observation": (
        "environment.test_with_a_step_limit_the_last_observations_are_the_final_ones"
    ),
    "OnMessage": "environment.test_messages_reach_the_environment",
    "ticks that drift": "environment.test_ticks_that_differ_are_noted_once",
    # feedback and rewards
    "actor_id": "rewards.test_actor_id_becomes_the_receiver",
    "tick_id": "rewards.test_tick_ids_are_kept",
    "content": "rewards.test_content_becomes_a_bytes_value",
    "value, confidence and agent_id": "rewards.test_a_reward_for_an_old_agent",
    "several rewards in one answer": "rewards.test_several_rewards_as_one",
    "no reward": "client.test_without_a_reward_the_field_is_not_there",
    # deltas
    "replace": "snapshots.test_without_a_delta_type_a_delta_replaces",
    "merge": "snapshots.test_merging",
    "module:function": "snapshots.test_functions_by_name",
    "no rule": "snapshots.test_a_delta_that_nobody_can_apply_is_no_observation",
    "deltas are by actor": "snapshots.test_deltas_are_applied_for_each_actor_and_not_for_each_entry",
    # messages
    "ids and names": "messages.test_ids_become_names_and_names_ids",
    # gaps
    "actor_counts and trial_config": "old_servers.test_an_old_environment_an_old_agent_and_actors_of_today",
    "a mailbox for one observation": "client.test_what_came_for_a_call_that_has_gone_is_in_the_next_answer",
    "several humans": "client.test_an_early_action_waits_for_the_others",
    "no LAST/ACK": "environment.test_the_end_is_acknowledged_for_old_participants",
    "params without names": "actor_ids.test_actors_without_names_get_one",
    "version": "client.test_version_is_of_the_0_3_family",
    "an absent action": "environment.test_an_actor_that_does_not_act_is_an_empty_action",
    "the sender of a feedback": (
        "old_servers.test_the_sender_of_a_feedback_is_lost_to_old_agents_and_kept_in_the_data_log"
    ),
    "implementation names": "client.test_implementations_are_those_of_the_profile",
    "user_id": "client.test_start_carries_the_config_and_the_user",
    "user_id, with parameters of the profile": "client.test_the_parameters_of_the_profile_get_the_config",
    "hooks": "hook.test_an_old_hook_changes_parameters",
    "data logs": "data_log.test_an_old_data_log_gets_the_samples_by_ids",
    "the log of an old orchestrator": "data_log.test_the_log_of_an_old_orchestrator_is_stored",
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_its_test(row: str) -> None:
    module, name = ROWS[row].split(".")
    assert callable(getattr(importlib.import_module(f"tests.gateways.legacy.test_{module}"), name))
