// SPDX-License-Identifier: Apache-2.0
// Every range of the readers at its ends: the end is accepted, the next value is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/job/plan_reader.hpp"
#include "runtime/model/decoder_config.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Limit {
  const char* table;
  const char* key;
  const char* lowest;
  const char* below;  ///< lower end; empty: none
  const char* highest;
  const char* above;  ///< upper end; empty: none
};

void PrintTo(const Limit& limit, std::ostream* out) {
  *out << limit.table << '.' << limit.key;
}

std::string error_of(const Limit& limit, const std::string& value) {
  const std::string table = limit.table;
  const bool noise = std::string(limit.key) == "image_share";
  const std::string kind = noise ? "kind = \"synthetic_images\"\n" : "kind = \"llava\"\npath = \"x\"\n";
  const std::string key = std::string(limit.key) + " = " + value + "\n";
  const auto job = JobDocument::parse("[" + table + "]\n" + (table == "data" ? kind : "") + key, "job.toml");
  const JobTable read = job.root().table(table);
  return job_error_of([&] {
    if (table == "train") (void)read_train(read);
    if (table == "data") (void)read_data(read);
    if (table == "schedule") (void)read_schedule(read);
    if (table == "guard") (void)read_guard(read);
    if (table == "transport") (void)read_transport(read);
    if (table == "emulation") (void)read_emulation(read);
    if (table == "plan") (void)read_plan(read);
    if (table == "section") (void)read_section(read, "section");
    if (table == "decoder") (void)read_decoder(read);
  });
}

class JobLimits : public testing::TestWithParam<Limit> {};

TEST_P(JobLimits, the_ends_of_a_range_belong_to_it) {
  const Limit limit = GetParam();
  const std::string refused = std::string(limit.table) + "." + limit.key + ": must be ";
  // Values that do not fit each other, such as heads and width, are another error.
  EXPECT_THAT(error_of(limit, limit.lowest), Not(HasSubstr(refused)));
  EXPECT_THAT(error_of(limit, limit.highest), Not(HasSubstr(refused)));
  for (const std::string beyond : {limit.below, limit.above}) {
    if (!beyond.empty()) {
      EXPECT_THAT(error_of(limit, beyond), HasSubstr(refused));
    }
  }
}

constexpr const char* counted = "1099511627776";  // 2^40
constexpr const char* beyond_counted = "1099511627777";
constexpr const char* size = "2147483648";  // 2^31
constexpr const char* beyond_size = "2147483649";
constexpr const char* smallest = "5e-324";  // the number next to zero
constexpr const char* largest = "1.7976931348623157e308";
constexpr const char* below_one = "0.9999999999999999";

INSTANTIATE_TEST_SUITE_P(train, JobLimits,
                         testing::Values(Limit{"train", "steps", "1", "0", counted, beyond_counted},
                                         Limit{"train", "seed", "0", "-1", "9223372036854775807", ""},
                                         Limit{"train", "global_batch", "1", "0", "1048576", "1048577"},
                                         Limit{"train", "checkpoint_every", "0", "-1", counted, beyond_counted},
                                         Limit{"train", "archive_every", "0", "-1", counted, beyond_counted},
                                         Limit{"train", "keep_checkpoints", "1", "0", counted, beyond_counted},
                                         Limit{"train", "validate_every", "0", "-1", counted, beyond_counted},
                                         Limit{"train", "validation_samples", "0", "-1", counted, beyond_counted},
                                         Limit{"train", "max_recoveries", "0", "-1", counted, beyond_counted},
                                         Limit{"train", "ahead", "1", "0", "1024", "1025"},
                                         Limit{"train", "stall_timeout_s", "0", "-5e-324", "1e6", "1000000.0000000001"},
                                         Limit{"train", "work_timeout_s", "0", "-5e-324", "1e6", "1000000.0000000001"},
                                         Limit{"train", "peer_timeout_s", "1e-3", "0.0009999999999999998", "1e6",
                                               "1000000.0000000001"}));

INSTANTIATE_TEST_SUITE_P(data, JobLimits,
                         testing::Values(Limit{"data", "sequence", "1", "0", "16777216", "16777217"},
                                         Limit{"data", "vocabulary", "2", "1", size, beyond_size},
                                         Limit{"data", "validation_fraction", smallest, "0", below_one, "1"},
                                         Limit{"data", "patch", "1", "0", "1024", "1025"},
                                         Limit{"data", "image_size", "0", "-1", "16384", "16385"},
                                         Limit{"data", "max_image_size", "1", "0", "16384", "16385"},
                                         Limit{"data", "image_share", "0", "-5e-324", "1", "1.0000000000000002"},
                                         Limit{"data", "max_bad_samples", "0", "-1", counted, beyond_counted}));

INSTANTIATE_TEST_SUITE_P(
    other_tables, JobLimits,
    testing::Values(Limit{"schedule", "budget_ms", smallest, "0", "3.6e6", "3600000.0000000005"},
                    Limit{"schedule", "evaluations", "0", "-1", counted, beyond_counted},
                    Limit{"guard", "window", "8", "7", "65536", "65537"},
                    Limit{"guard", "z", "1", "0.9999999999999999", "1e6", "1000000.0000000001"},
                    Limit{"guard", "rise", "0", "-5e-324", "1e6", "1000000.0000000001"},
                    Limit{"guard", "patience", "1", "0", counted, beyond_counted},
                    Limit{"guard", "norm", "1.0000000000000002", "1", "1e9", "1000000000.0000001"},
                    Limit{"guard", "skip_steps", "2", "1", "65536", "65537"},
                    Limit{"guard", "max_rollbacks", "0", "-1", counted, beyond_counted},
                    Limit{"transport", "slots", "1", "0", "64", "65"},
                    Limit{"transport", "chunk_kib", "1", "0", "1048576", "1048577"},
                    Limit{"transport", "timeout_s", "1e-3", "0.0009999999999999998", "1e6", "1000000.0000000001"},
                    Limit{"transport", "start_timeout_s", "1e-3", "0.0009999999999999998", "1e6", "1000000.0000000001"},
                    Limit{"transport", "port", "0", "-1", "65535", "65536"},
                    Limit{"plan", "predicted_step_ms", smallest, "0", "1e12", "1000000000000.0001"},
                    Limit{"plan", "headroom", smallest, "0", "1", "1.0000000000000002"},
                    Limit{"emulation", "gflops", smallest, "0", largest, "inf"},
                    Limit{"emulation", "step_ms", "0", "-5e-324", "3.6e6", "3600000.0000000005"},
                    Limit{"emulation", "reduce_gb_s", "0", "-5e-324", "1e9", "1000000000.0000001"}));

INSTANTIATE_TEST_SUITE_P(section, JobLimits,
                         testing::Values(Limit{"section", "replicas", "1", "0", "16384", "16385"},
                                         Limit{"section", "tensor", "1", "0", "1024", "1025"},
                                         Limit{"section", "context", "1", "0", "1024", "1025"},
                                         Limit{"section", "pipeline", "1", "0", "1024", "1025"},
                                         Limit{"section", "micro_batch", "1", "0", size, beyond_size},
                                         Limit{"section", "micro_batch_tokens", "0", "-1", counted, beyond_counted},
                                         Limit{"section", "max_in_flight", "1", "0", "64", "65"},
                                         Limit{"section", "memory_mib", "0", "-1", counted, beyond_counted},
                                         Limit{"section", "share", smallest, "0", "1", "1.0000000000000002"},
                                         Limit{"section", "lr", "0", "-5e-324", largest, "inf"},
                                         Limit{"section", "min_lr", "0", "-5e-324", largest, "inf"},
                                         Limit{"section", "warmup_steps", "0", "-1", counted, beyond_counted},
                                         Limit{"section", "weight_decay", "0", "-5e-324", largest, "inf"},
                                         Limit{"section", "beta1", "0", "-5e-324", below_one, "1"},
                                         Limit{"section", "beta2", "0", "-5e-324", below_one, "1"},
                                         Limit{"section", "epsilon", smallest, "0", largest, "inf"},
                                         Limit{"section", "clip_norm", "0", "-5e-324", largest, "inf"}));

INSTANTIATE_TEST_SUITE_P(decoder, JobLimits,
                         testing::Values(Limit{"decoder", "layers", "1", "0", "10000", "10001"},
                                         Limit{"decoder", "width", "1", "0", size, beyond_size},
                                         Limit{"decoder", "heads", "1", "0", size, beyond_size},
                                         Limit{"decoder", "kv_heads", "0", "-1", size, beyond_size},
                                         Limit{"decoder", "ffn", "0", "-1", size, beyond_size},
                                         Limit{"decoder", "vocabulary", "2", "1", size, beyond_size},
                                         Limit{"decoder", "positions", "1", "0", size, beyond_size},
                                         Limit{"decoder", "rope_theta", smallest, "0", largest, "inf"},
                                         Limit{"decoder", "norm_epsilon", smallest, "0", largest, "inf"},
                                         Limit{"decoder", "init_std", smallest, "0", largest, "inf"}));

}  // namespace
}  // namespace maestro
