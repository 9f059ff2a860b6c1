// SPDX-License-Identifier: Apache-2.0
// Fills the structs of config.hpp from the tables of a job file. Each reader takes one table, absent keys keep the
// defaults, and every value is checked by itself and against other keys of its table. Errors are JobErrors of one line
// with place and key. Checks across tables (batch over replicas, sequence against positions) belong to the plan.
#pragma once

#include <string>

#include "runtime/job/config.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// The scheduling policies that exist without plug-ins.
inline const std::vector<std::string> own_policies{"arrival", "bulk_synchronous", "wavefront"};

/// A section's kind of training. In the table of a forward-only section, optimizer keys are unknown keys.
enum class Training { none, optimized };

/// Reads `name` of the top level.
[[nodiscard]] std::string read_name(const JobTable& root);
/// Reads [train].
[[nodiscard]] TrainConfig read_train(const JobTable& train);
/// Reads [data]; kinds that are not generated need `path` or `mix`. Opening the corpus checks that the path exists.
/// Keys that do not apply to the kind are refused.
[[nodiscard]] DataConfig read_data(const JobTable& data);
/// Reads [emulation].
[[nodiscard]] EmulationConfig read_emulation(const JobTable& emulation);
/// Reads [schedule].
[[nodiscard]] ScheduleConfig read_schedule(const JobTable& schedule,
                                           const std::vector<std::string>& policies = own_policies);
/// Reads [guard].
[[nodiscard]] GuardConfig read_guard(const JobTable& guard);
/// Reads [transport].
[[nodiscard]] TransportConfig read_transport(const JobTable& transport);

/// Reads a model's file or folder, or its name on the hub. Returns the folder in the hub's cache (hub_cache.hpp) for a
/// name, any other text unchanged. Throws JobError for a name that the cache lacks.
[[nodiscard]] std::string read_model(const JobTable& table, std::string_view key, std::string fallback,
                                     KeyHelp help = {});

/// Reads `type` of a section's table, the name of a type in the registry.
[[nodiscard]] std::string read_type(const JobTable& section, std::string fallback);
/// Reads the keys that every section has, optimizer keys included; all are direct keys of the section's table, e.g.
/// [student]. `devices`, if given, names a device per replica, stage and rank.
[[nodiscard]] SectionConfig read_section(const JobTable& section, std::string name, SectionConfig defaults = {},
                                         Training training = Training::optimized);
/// Reads only `precision`, for a neighbour of the section.
[[nodiscard]] DType read_precision(const JobTable& section, DType fallback = DType::f32);
/// Reads lr, min_lr, warmup_steps, schedule, weight_decay, beta1, beta2, epsilon and clip_norm.
[[nodiscard]] OptimizerConfig read_optimizer(const JobTable& section, OptimizerConfig defaults = {});

}  // namespace maestro
