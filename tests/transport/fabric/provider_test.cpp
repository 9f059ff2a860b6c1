// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/provider.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace maestro {
namespace {

const std::vector<std::string> everything{"sockets", "tcp;ofi_rxm", "shm", "net;ofi_rxm", "verbs;ofi_rxm", "efa"};
const std::vector<std::string> plain{"shm", "tcp;ofi_rxm", "sockets"};

std::string chosen(const ProviderChoice& choice, const std::vector<std::string>& offered) {
  auto result = choose_provider(choice, offered);
  return result ? *result : "error: " + result.error().message;
}

TEST(Provider, auto_takes_the_best_network_there_is) {
  EXPECT_EQ(chosen({"auto", {}, Reach::network}, everything), "efa");
  EXPECT_EQ(chosen({"auto", {}, Reach::network}, {"tcp;ofi_rxm", "verbs;ofi_rxm"}), "verbs;ofi_rxm");
  EXPECT_EQ(chosen({"auto", {}, Reach::network}, plain), "tcp;ofi_rxm");
}

TEST(Provider, auto_takes_shared_memory_on_one_host_where_it_can) {
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host}, everything), "shm");
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host}, {"tcp;ofi_rxm"}), "tcp;ofi_rxm");
}

TEST(Provider, a_name_of_the_job_file_is_taken_by_its_word) {
  EXPECT_EQ(chosen({"tcp", {}, Reach::same_host}, everything), "tcp;ofi_rxm");
  EXPECT_EQ(chosen({"verbs", {}, Reach::network}, everything), "verbs;ofi_rxm");
  EXPECT_EQ(chosen({"shm", {}, Reach::network}, everything), "shm");
  EXPECT_EQ(chosen({"tcp;ofi_rxm", {}, Reach::network}, everything), "tcp;ofi_rxm");
}

TEST(Provider, the_environment_wins_over_the_job_file) {
  EXPECT_EQ(chosen({"shm", "tcp", Reach::same_host}, everything), "tcp;ofi_rxm");
  EXPECT_EQ(chosen({"shm", "net;ofi_rxm", Reach::same_host}, everything), "net;ofi_rxm");
}

TEST(Provider, an_unknown_name_is_refused_with_what_there_is) {
  const auto result = choose_provider({"shmm", {}, Reach::network}, plain);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(result.error().message,
            "transport.provider: unknown provider 'shmm'; available on this machine: auto, tcp, shm");
}

TEST(Provider, a_provider_that_this_machine_lacks_is_refused_with_what_there_is) {
  const auto result = choose_provider({"tcp", "efa", Reach::network}, plain);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::unavailable);
  EXPECT_EQ(result.error().message,
            "MAESTRO_PROVIDER: provider 'efa' is not on this machine; available: auto, tcp, shm");
}

TEST(Provider, shared_memory_without_room_is_told_as_that) {
  const std::vector<std::string> offered{"tcp;ofi_rxm"};
  const SharedMemoryRoom full{3 << 20, 32 << 20};
  EXPECT_EQ(
      chosen({"shm", {}, Reach::same_host, full}, offered),
      "error: transport.provider: /dev/shm has 3 MiB free, the shm provider needs 32 MiB; mount it larger, or set "
      "transport.provider = tcp");
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, full}, offered), "tcp;ofi_rxm");
  EXPECT_NE(chosen({"shm", {}, Reach::same_host, SharedMemoryRoom{64 << 20, 32 << 20}}, offered).find("not on this"),
            std::string::npos);
  EXPECT_NE(chosen({"efa", {}, Reach::same_host, full}, offered).find("not on this machine"), std::string::npos);
}

TEST(Provider, processes_of_a_job_take_shared_memory_all_or_none) {
  const SharedMemoryRoom full{17 << 20, 32 << 20};
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, full, SharedMemoryUse::by_none}, everything), "efa");
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, full, SharedMemoryUse::by_none}, plain), "tcp;ofi_rxm");
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, full, SharedMemoryUse::by_all}, plain), "shm");
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, full, SharedMemoryUse::by_all}, {"tcp;ofi_rxm"}),
            "error: transport.provider: /dev/shm has 17 MiB free, the shm provider needs 32 MiB; mount it larger, or "
            "set transport.provider = tcp");
  const SharedMemoryRoom enough{64 << 20, 32 << 20};
  EXPECT_EQ(chosen({"auto", {}, Reach::same_host, enough, SharedMemoryUse::by_all}, {"tcp;ofi_rxm"}), "tcp;ofi_rxm")
      << "this libfabric has no shm";
  EXPECT_EQ(chosen({"auto", {}, Reach::network, full, SharedMemoryUse::by_all}, {"tcp;ofi_rxm"}), "tcp;ofi_rxm");
}

TEST(Provider, each_further_process_needs_a_segment) {
  const SharedMemoryRoom of_one{33 << 20, 32 << 20};
  EXPECT_EQ(missing_room(room_of_all(of_one, 1)), "");
  EXPECT_EQ(missing_room(room_of_all(of_one, 2)), "/dev/shm has 33 MiB free, the shm provider needs 48 MiB");
  EXPECT_EQ(missing_room(room_of_all({80 << 20, 32 << 20}, 4)), "");
  EXPECT_EQ(missing_room(room_of_all({80 << 20, 32 << 20}, 5)),
            "/dev/shm has 80 MiB free, the shm provider needs 96 MiB");
}

TEST(Provider, room_is_that_of_the_file_system) {
  EXPECT_GT(shared_memory_room()->needed_bytes, 0u);
  EXPECT_FALSE(shared_memory_room("/no/such/folder").has_value());
}

TEST(Provider, a_machine_with_no_provider_says_where_to_look) {
  const auto result = choose_provider({}, {});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("fi_info"), std::string::npos);
}

TEST(Provider, loopback_addresses_reach_this_host_only) {
  EXPECT_EQ(reach_of("127.0.0.1"), Reach::same_host);
  EXPECT_EQ(reach_of("localhost"), Reach::same_host);
  EXPECT_EQ(reach_of("::1"), Reach::same_host);
  EXPECT_EQ(reach_of("10.0.0.1"), Reach::network);
  EXPECT_EQ(reach_of("0.0.0.0"), Reach::network);
}

TEST(Provider, this_machine_offers_tcp_and_shared_memory) {
  const auto offered = offered_providers();
  for (const auto* name : {"tcp;ofi_rxm", "shm"}) {
    EXPECT_NE(std::find(offered.begin(), offered.end(), name), offered.end()) << name;
  }
}

}  // namespace
}  // namespace maestro
