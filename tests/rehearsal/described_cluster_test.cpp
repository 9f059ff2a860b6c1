// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/described_cluster.hpp"

#include <gmock/gmock.h>

#include <random>

#include "runtime/observe/output_file.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

DescribedPool pool() {
  DescribedPool made;
  made.name = "two hosts";
  made.memory_bytes = 1e9;
  made.bf16_flops_per_ms = 1e9;
  made.fp32_flops_per_ms = 1e8;
  made.memory_bytes_per_ms = 1e6;
  made.efficiency = {{1e6, 0.25}, {1e8, 0.75}};
  made.launch_ms = 0.001;
  made.hosts = 2;
  made.devices_of_host = 4;
  made.inside = {1e6, 0.01};
  made.network = {4e5, 0.02};
  return made;
}

double price(const DescribedPool& of, const OperatorCall& call) {
  PriceSources sources;
  return DescribedPrices(of).ms(call, sources);
}

OperatorCall linear(double flops, double bytes, DType dtype = DType::bf16) {
  return {"linear", dtype, {1, 1, 1}, flops, bytes};
}

TEST(DescribedPrices, a_product_takes_the_longer_of_its_flops_and_its_bytes) {
  EXPECT_NEAR(price(pool(), linear(1e7, 10)), 0.001 + 1e7 / (1e9 * 0.5), 1e-12);
  EXPECT_NEAR(price(pool(), linear(1e7, 10, DType::f32)), 0.001 + 1e7 / (1e8 * 0.5), 1e-12);
  EXPECT_NEAR(price(pool(), linear(1e3, 5e6)), 0.001 + 5, 1e-12);
  EXPECT_NEAR(price(pool(), {"norm", DType::f32, {8, 8}, 1e12, 5e6}), 0.001 + 5, 1e-12) << "it moves bytes";
  EXPECT_EQ(price(pool(), {"forward head 1a2b3c4d", DType::bf16, {8, 2}, 1e7, 0}), price(pool(), linear(1e7, 0)));
}

TEST(DescribedPrices, groups_of_one_rank_are_free_and_others_go_round_a_ring) {  // DU-1
  const auto call = [](const char* op, std::int64_t ranks) {
    OperatorCall made{op, DType::f32, {1000000, ranks}, 0};
    made.bytes = 1e6;
    return made;
  };
  EXPECT_EQ(price(pool(), call("all_gather", 1)), 0);
  EXPECT_NEAR(price(pool(), call("all_gather", 4)), 3 * 0.01 + 0.75, 1e-12);
  EXPECT_NEAR(price(pool(), call("all_reduce", 4)), 3 * 0.01 + 1.5, 1e-12);
  DescribedPool slower = pool();
  slower.inside.bytes_per_ms /= 2;
  EXPECT_NEAR(price(slower, call("all_gather", 4)) - 0.03, 2 * (price(pool(), call("all_gather", 4)) - 0.03), 1e-12);
  EXPECT_EQ(DescribedPrices(pool()).exchange_ms(1e6, 1, 1), 0);
  EXPECT_NEAR(DescribedPrices(pool()).write_ms(1e6), 10.02, 1e-9);
}

TEST(DescribedPrices, replicas_of_a_host_exchange_inside_it_and_others_share_its_network) {
  const DescribedPrices prices(pool());
  const auto hosts = pool().devices_of_host;
  ASSERT_GE(hosts, 2);
  EXPECT_NEAR(prices.exchange_ms(1e6, hosts, 1),
              (1 - 1.0 / static_cast<double>(hosts)) * 1e6 / pool().inside.bytes_per_ms + pool().inside.latency_ms,
              1e-9);
  const double of_device = pool().network.bytes_per_ms / static_cast<double>(hosts);
  EXPECT_NEAR(prices.exchange_ms(1e6, 4, hosts), 0.75 * 1e6 / of_device + pool().network.latency_ms, 1e-9)
      << "a replica has all devices of a host";
  const double whole = std::min(pool().network.bytes_per_ms, pool().inside.bytes_per_ms);
  EXPECT_NEAR(prices.exchange_ms(1e6, 4 * hosts, 1),
              (1 - 0.25 / static_cast<double>(hosts)) * 1e6 / whole + pool().network.latency_ms, 1e-9)
      << "a single ring passes between the hosts";
}

TEST(DescribedPrices, more_work_or_slower_devices_never_make_a_call_shorter) {  // DU-1
  std::mt19937 random(3);
  const auto drawn = [&](double most) { return std::uniform_real_distribution<double>(1, most)(random); };
  for (int trial = 0; trial < 500; ++trial) {
    DescribedPool slower = pool();
    slower.bf16_flops_per_ms /= drawn(4);
    slower.memory_bytes_per_ms /= drawn(4);
    const OperatorCall call = linear(drawn(1e9), drawn(1e7));
    EXPECT_GE(price(slower, call), price(pool(), call));
    EXPECT_GE(price(pool(), linear(call.flops, call.bytes * drawn(3))), price(pool(), call));
  }
  for (double flops = 1e5; flops < 1e10; flops *= 1.1) {
    EXPECT_GE(price(pool(), linear(flops * 1.1, 0)), price(pool(), linear(flops, 0))) << flops;
  }
}

class ClusterFile : public ::testing::Test {
 protected:
  std::string error_of(const std::string& text) {
    write_output(file(), text).or_throw();
    try {
      (void)read_cluster(file());
      return {};
    } catch (const JobError& error) {
      return error.what();
    }
  }
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "cluster.toml"; }
  const std::string device_ =
      "[kinds.h100]\nmemory_gib = 80\ntflops_bf16 = 989\ntflops_fp32 = 67\nmemory_gb_s = 3350\n";
  const std::string hosts_ = "[hosts.a]\ncount = 8\ndevices = 8\ninside_gb_s = 450\nnetwork_gb_s = 400\n";

 private:
  TempFolder folder_;
};

TEST_F(ClusterFile, is_read_in_the_units_of_data_sheets) {
  ASSERT_EQ(error_of("name = \"h100\"\n" + device_ + "efficiency = [[1e9, 0.5]]\nlaunch_us = 4\n" + hosts_), "");
  const DescribedCluster read = read_cluster(file());
  EXPECT_EQ(read.name, "h100");
  EXPECT_EQ(read.devices(), 64);
  EXPECT_FALSE(read.priced());
  ASSERT_EQ(read.pools.size(), 1U);
  const DescribedPool& hosts = read.pools.front();
  EXPECT_EQ(hosts.name, "a");
  EXPECT_EQ(hosts.kind, "h100");
  EXPECT_NEAR(hosts.bf16_flops_per_ms, 989e9, 1);
  EXPECT_NEAR(hosts.memory_bytes_per_ms, 3350e6, 1);
  EXPECT_NEAR(hosts.launch_ms, 0.004, 1e-12);
  EXPECT_NEAR(hosts.inside.bytes_per_ms, 450e6, 1);
  EXPECT_EQ(hosts.price_per_hour, 0);
}

TEST_F(ClusterFile, pools_of_hosts_have_devices_of_their_kind) {
  const std::string other = "[kinds.a100]\nmemory_gib = 40\ntflops_bf16 = 312\ntflops_fp32 = 19\nmemory_gb_s = 1555\n";
  const std::string of_other =
      "[hosts.b]\nkind = \"a100\"\ncount = 2\ndevices = 4\ninside_gb_s = 300\nnetwork_gb_s = 50\n";
  ASSERT_EQ(error_of(device_ + other + of_other + hosts_ + "kind = \"h100\"\n[between]\ngb_s = 25\nus = 50\n"), "");
  const DescribedCluster read = read_cluster(file());
  ASSERT_EQ(read.pools.size(), 2U);
  EXPECT_EQ(read.devices(), 72);
  EXPECT_EQ(read.pools[0].kind, "a100") << "the order of the file";
  EXPECT_NEAR(read.pools[1].memory_bytes, 80.0 * (1 << 30), 1);
  ASSERT_TRUE(read.between.has_value());
  EXPECT_NEAR(read.between->latency_ms, 0.05, 1e-12);
  EXPECT_THAT(error_of(device_ + other + of_other + hosts_), HasSubstr("hosts.a.kind: missing"));
  EXPECT_THAT(error_of(device_ + other + hosts_ + "kind = \"h100\"\n"), HasSubstr("kinds.a100: no hosts"));
  EXPECT_THAT(error_of(device_ + hosts_ + "kind = \"h10\"\n"), HasSubstr("h100"));
}

TEST_F(ClusterFile, errors_have_the_line_and_the_key) {
  EXPECT_THAT(error_of(device_ + hosts_ + "devises = 8\n"), HasSubstr("devises: unknown key; did you mean"));
  EXPECT_THAT(error_of(hosts_), HasSubstr("kinds: missing"));
  EXPECT_THAT(error_of(device_), HasSubstr("hosts: missing"));
  EXPECT_THAT(error_of(device_ + "efficiency = [[1e9, 1.5]]\n" + hosts_), HasSubstr("efficiency: expected pairs"));
  EXPECT_THAT(error_of(device_ + "efficiency = [[1e9, 0.5], [1e8, 0.6]]\n" + hosts_), HasSubstr("rising FLOPs"));
  EXPECT_THAT(error_of("[kinds.x]\nmemory_gib = 0\n"), HasSubstr("kinds.x.memory_gib"));
  EXPECT_THAT(error_of(device_ + "[hosts.a]\ncount = 0\n"), HasSubstr("cluster.toml:7: hosts.a.count"));
}

}  // namespace
}  // namespace maestro
