//! Tests of the rules: one machine with its tasks (`world`), and several connected machines (`fleet`).

mod barriers_after_death;
mod barriers_over_hosts;
mod cross_host_groups;
mod daemon_requests;
mod data_link_breaks;
mod direct_links;
mod draining_hosts;
mod fabric_introductions;
pub mod fleet;
pub mod group_members;
mod halts_and_losses;
mod hearing;
mod hostile_hosts;
mod link_breaks;
mod mailboxes;
mod moving_master;
mod outputs;
mod placements;
mod random_fleet;
mod random_tasks;
mod reached_limits;
mod serving_tasks;
mod several_hosts;
mod spawns;
mod succession;
mod task_ends;
mod tasks_elsewhere;
mod traced_tasks;
mod votes;
mod votes_model;
pub mod world;

// Imports of most tests.
use super::*;
use crate::proto::{FabricOffer, LinkCause, Request, RunSettings, TaskKind, ToTask, Welcome};
use crate::wire::{HostOptions, KEY_BYTES, LinkAnswer, Refusal};
use std::collections::VecDeque;
use std::time::Duration;
