// SPDX-License-Identifier: Apache-2.0
// Fills the structs of config.hpp from the tables of a job file. Each reader gets its own table, absent keys keep the
// defaults, and every value is checked alone and against the others of its table. Errors are one-line JobErrors with
// the place and key. What spans tables (batch over replicas, sequence against positions) is checked with the plan.
#pragma once

#include <string>

#include "runtime/job/config.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

/// Whether a section learns; a forward-only one has no optimizer, so optimizer keys under its name are unknown keys.
enum class Training { none, optimized };

/// [train]
[[nodiscard]] TrainConfig read_train(const JobTable& train);
/// [data]; the kinds "text" and "llava" demand `path`, whose existence is checked when the corpus is opened. Keys of
/// pictures are refused for kinds that have none.
[[nodiscard]] DataConfig read_data(const JobTable& data);
/// [transport]
[[nodiscard]] EmulationConfig read_emulation(const JobTable& emulation);
ScheduleConfig read_schedule(const JobTable& schedule);
TransportConfig read_transport(const JobTable& transport);

/// Keys of every section, optimizer included, standing flat in the section's table, e.g. [student]. `devices`, where
/// given, names one device per replica.
[[nodiscard]] SectionConfig read_section(const JobTable& section, std::string name, SectionConfig defaults = {},
                                         Training training = Training::optimized);
/// lr, min_lr, warmup_steps, schedule, weight_decay, beta1, beta2, epsilon, clip_norm, flat in the section's table.
[[nodiscard]] OptimizerConfig read_optimizer(const JobTable& section, OptimizerConfig defaults = {});
/// Shape keys of a decoder, flat in the section's table. kv_heads = 0 and ffn = 0 stay as they are: the decoder
/// resolves them.
[[nodiscard]] DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults = {});

}  // namespace maestro
