// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/call_prices.hpp"

#include <gmock/gmock.h>

#include "runtime/observe/output_file.hpp"
#include "runtime/rehearsal/profile_file.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

OperatorCall linear(std::int64_t rows, DType dtype = DType::f32) {
  return {"linear", dtype, {rows, 64, 32}, 2.0 * static_cast<double>(rows) * 64 * 32, 0};
}

double price(const CallPrices& prices, const OperatorCall& call) {
  PriceSources sources;
  return prices.ms(call, sources);
}

TEST(CallPrices, a_measured_call_costs_the_median_of_its_times) {  // QC-1
  CallPrices prices;
  for (const double ms : {9.0, 2.0, 3.0, 1.0, 50.0}) prices.add(linear(8), ms);
  EXPECT_EQ(price(prices, linear(8)), 3.0);
  EXPECT_TRUE(prices.has(linear(8)));
  EXPECT_FALSE(prices.has(linear(16)));
}

TEST(CallPrices, another_call_costs_its_work_at_a_rate_between_its_neighbours) {  // QC-2
  CallPrices prices;
  prices.add(linear(8), 8);    // 1 ms per row
  prices.add(linear(32), 16);  // 0.5
  EXPECT_NEAR(price(prices, linear(16)), 16 * 0.75, 1e-9) << "half way by the logarithm";
  EXPECT_NEAR(price(prices, linear(64)), 32, 1e-9);
  EXPECT_NEAR(price(prices, linear(4)), 4, 1e-9);
  for (std::int64_t rows = 8; rows <= 32; ++rows) {
    const double rate = price(prices, linear(rows)) / static_cast<double>(rows);
    EXPECT_GE(rate, 0.5 - 1e-12);
    EXPECT_LE(rate, 1 + 1e-12);
  }
}

TEST(CallPrices, another_dtype_serves_where_there_is_none_and_another_operator_never) {
  CallPrices prices;
  prices.add(linear(8), 8);
  EXPECT_NEAR(price(prices, linear(8, DType::bf16)), 8, 1e-9);
  EXPECT_EQ(price(prices, {"norm", DType::f32, {8, 32}, 100, 100}), 0);
}

TEST(CallPrices, sources_tell_measured_from_estimated_milliseconds) {
  CallPrices prices;
  prices.add(linear(8), 8);
  PriceSources sources;
  EXPECT_EQ(sources.measured_share(), 1);
  (void)prices.ms(linear(8), sources);
  (void)prices.ms(linear(16), sources);
  EXPECT_NEAR(sources.measured_share(), 8.0 / 24, 1e-9);
}

TEST(CallPrices, the_time_beside_calls_is_that_of_each) {
  CallPrices prices;
  EXPECT_EQ(prices.glue_ms(), 0);
  prices.add_glue(10, 0.5);
  prices.add_glue(0, 7);
  prices.add_glue(10, -1);
  EXPECT_EQ(prices.glue_ms(), 0.05);  // upper median of two
  for (int pass = 0; pass < 4; ++pass) prices.add_glue(10, -1);
  EXPECT_EQ(prices.glue_ms(), -0.1) << "calls that are replayed together take less than those that are timed";
}

TEST(CallPrices, gpus_exchange_gradients_by_the_groups_that_were_measured) {
  CallPrices prices;
  for (const char* const group : {"reduce_scatter", "all_gather"}) {
    const double ms = group == std::string("all_gather") ? 3 : 5;
    prices.add({group, DType::f32, {4000, 2}, 0, 4000}, ms);
    prices.add({group, DType::f32, {4000, 4}, 0, 4000}, 2 * ms);
  }
  EXPECT_EQ(prices.exchange_ms(4000, 2, 1), 0) << "CPUs share their memory";
  prices.set_own_memory();
  EXPECT_EQ(prices.exchange_ms(4000, 2, 1), 4);
  EXPECT_EQ(prices.exchange_ms(4000, 4, 1), 8);
  EXPECT_EQ(prices.exchange_ms(4000, 1, 1), 0);
}

TEST(LeastPrices, a_call_is_bound_by_the_best_rates_of_work_and_of_memory) {
  CallPrices prices;
  const auto call = [](double flops, double bytes) {
    return OperatorCall{"linear", DType::bf16, {static_cast<std::int64_t>(flops + bytes)}, flops, bytes};
  };
  prices.add(call(4000, 10), 2);   // 2000 FLOPs per ms
  prices.add(call(10, 900), 1);    // 900 bytes per ms
  prices.add(call(1, 500), 0.01);  // too short for a rate
  const LeastPrices least(prices);
  PriceSources sources;
  EXPECT_DOUBLE_EQ(least.ms(call(1000, 90), sources), 0.5);
  EXPECT_DOUBLE_EQ(least.ms(call(1000, 900), sources), 1);
  EXPECT_EQ(least.glue_ms(), 0);
  CallPrices small;
  small.add(call(4000, 10), 0.01);
  EXPECT_EQ(LeastPrices(small).ms(call(1000, 90), sources), 0) << "no call fills the device";
}

class ProfileFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "profile.json"; }
  std::string error_of(const std::string& text) {
    write_output(file(), text).or_throw();
    const Result<MachinePrices> read = read_profile(file());
    return read ? "" : read.error().message;
  }

 private:
  TempFolder folder_;
};

TEST_F(ProfileFile, prices_come_back_as_they_were) {  // PB-1
  MachinePrices prices;
  prices.build = "abc";
  prices.devices = 2;
  prices.alone.add(linear(8), 1.25);
  prices.busy.add(linear(8), 1.5);
  prices.alone.add(linear(16, DType::bf16), 1.0 / 3);
  prices.busy.add(linear(16, DType::bf16), 2.0 / 3);
  prices.busy.add_glue(1, 0.002);
  const OperatorCall rotated_back{"rotary", DType::bf16, {1024, 2304, -1}, 1, 1};
  prices.alone.add(rotated_back, 0.5);
  prices.busy.add(rotated_back, 0.75);
  write_profile(prices, file()).or_throw();
  const MachinePrices read = read_profile(file()).value_or_throw();
  EXPECT_EQ(read.build, "abc");
  EXPECT_EQ(read.devices, 2);
  EXPECT_NEAR(read.busy.glue_ms(), 0.002, 1e-9);
  ASSERT_EQ(read.alone.measured().size(), 3U);
  for (const auto& [call, ms] : prices.alone.measured()) {
    EXPECT_NEAR(price(read.alone, call), ms, 1e-6);
    EXPECT_NEAR(price(read.busy, call), price(prices.busy, call), 1e-6);
  }
}

TEST_F(ProfileFile, gpus_have_their_model_and_prices_on_shares) {  // PB-1
  MachinePrices prices;
  prices.set_gpus("NVIDIA H200");
  prices.alone.add(linear(8), 1);
  prices.busy.add(linear(8), 1);
  prices.alone.add_glue(10, -0.02);
  for (std::size_t part = 0; part < prices.parts.size(); ++part) {
    prices.parts[part].add(linear(8), 1 / measured_shares[part]);
  }
  write_profile(prices, file()).or_throw();
  const MachinePrices read = read_profile(file()).value_or_throw();
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_TRUE(read.alone.own_memory());
  EXPECT_NEAR(read.alone.glue_ms(), -0.002, 1e-9);
  for (std::size_t part = 0; part < read.parts.size(); ++part) {
    EXPECT_NEAR(price(read.parts[part], linear(8)), 1 / measured_shares[part], 1e-6);
    EXPECT_NEAR(read.parts[part].glue_ms(), -0.002, 1e-9);
  }
}

TEST_F(ProfileFile, errors_have_the_place_and_the_reason) {  // PB-2
  const std::string rest = R"("maestro": "x", "devices": 1, "glue_alone_us": 0, "glue_busy_us": 0)";
  const std::string call = R"({"op": "linear", "dtype": "fp32", "sizes": [1], "flops": 1, "bytes": 1, "alone_us": 1)";
  EXPECT_THAT(error_of("{"), HasSubstr("profile.json"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{" + rest + "}"), HasSubstr("calls is missing"));
  EXPECT_THAT(error_of("{" + rest + R"(, "calls": [], "devises": 2})"),
              HasSubstr("devises: unknown key; did you mean 'devices'?"));
  EXPECT_THAT(error_of("{" + rest + R"(, "calls": [)" + call + "}]}"), HasSubstr("calls[0].busy_us is missing"));
  EXPECT_THAT(error_of("{" + rest + R"(, "calls": [)" + call + R"(, "busy_us": -1}]})"),
              HasSubstr("calls[0].busy_us: expected a number from 0 on, got -1"));
  for (const char* const devices : {"1.5", "-1", "9223372036854775808", "2e41", "\"2\""}) {
    EXPECT_THAT(error_of(R"({"maestro": "x", "devices": )" + std::string(devices) + "}"),
                HasSubstr("devices: expected a whole number from 0 on, got "));
  }
  for (const char* const sizes :
       {"[-9223372036854775809]", "[1.5]", "[9223372036854775808]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "1"}) {
    EXPECT_THAT(error_of("{" + rest + R"(, "calls": [{"op": "linear", "dtype": "fp32", "sizes": )" + sizes + "}]}"),
                HasSubstr("calls[0].sizes"));
  }
  for (const char* const parts : {"[1, 2]", "[1, 2, -3]", "4"}) {
    EXPECT_THAT(error_of("{" + rest + R"(, "calls": [)" + call + R"(, "busy_us": 1, "parts_us": )" + parts + "}]}"),
                HasSubstr("calls[0].parts_us"));
  }
  const std::string whole = call + R"(, "busy_us": 1})";
  EXPECT_THAT(error_of("{" + rest + R"(, "calls": [)" + whole + ", " + whole + "]}"),
              HasSubstr("calls[1]: the same call as an earlier one"));
  EXPECT_THAT(error_of("{" + rest + R"(, "calls": [{"op": "linear", "dtype": "fp8"}]})"),
              HasSubstr("calls[0].dtype = \"fp8\" is not supported; these are: "));
  EXPECT_EQ(error_of("{" + rest + R"(, "calls": [)" + whole + "]}"), "");
}

}  // namespace
}  // namespace maestro
