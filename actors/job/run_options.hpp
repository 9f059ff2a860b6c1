// SPDX-License-Identifier: Apache-2.0
// Options of a run on the command line, next to the job file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actors/launch/launch_info.hpp"

namespace maestro {

struct RunOptions {
  std::int64_t processes = 1;    ///< processes of the job; App takes the number from `hosts` or a launcher if given
  std::string hosts;             ///< "a,b:2": start the processes on these hosts, by `ssh`
  std::string ssh;               ///< remote shell and its options; empty: ssh
  std::string listen;            ///< replaces the job's transport.listen
  std::filesystem::path keys;    ///< replaces the job's transport.keys
  bool joins = false;            ///< may be one process of a job that SLURM, Open MPI or torchrun has started
  std::int64_t cpu_devices = 0;  ///< devices cpu:0, cpu:1, ...; 0: as many as there are cores
  std::filesystem::path report;
  std::filesystem::path trace;
  std::string tensorboard;  ///< folder for curves; "auto": in train.out; empty: none
  std::filesystem::path resume;
  bool fresh = false;                        ///< an earlier run in train.out is moved aside
  bool new_data = false;                     ///< a resumed run may use other data than its checkpoint
  std::filesystem::path replayed;            ///< record of the run that this one replays: the guard learns its steps
  std::uint64_t until = 0;                   ///< the run ends after this step; 0: after train.steps
  std::optional<std::uint64_t> pause_after;  ///< the run pauses after this step; 0: before the first
  std::string log_format;                    ///< "json": JSON lines from all processes; else text
  std::string control;                       ///< address of the control service; empty: a local socket; "none": off
  std::string http;                          ///< address of the live page; empty: none
  bool check_only = false;                   ///< validate everything, start nothing
  bool quiet = false;                        ///< no run header
  std::vector<std::string> notes;            ///< printed in the run header
  std::vector<std::string> command;          ///< arguments that start the other processes of this run
  LaunchInfo launch_info;                    ///< found by App
};

}  // namespace maestro
