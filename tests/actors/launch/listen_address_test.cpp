// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/listen_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<InterfaceAddress> here = {
    {"lo", "127.0.0.1", true}, {"eth0", "192.0.2.7", false}, {"ib0", "10.1.0.7", false}};

std::string refusal_of(const std::string& wanted, const std::string& towards,
                       const std::vector<InterfaceAddress>& addresses = here) {
  try {
    (void)choose_listen_address(wanted, towards, addresses);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ListenAddress, auto_follows_the_route_to_rank_0) {
  EXPECT_EQ(choose_listen_address("auto", "10.1.0.7", here), "10.1.0.7");
}

TEST(ListenAddress, on_rank_0_whose_name_is_a_loopback_address_auto_is_the_first_other_one) {
  EXPECT_EQ(choose_listen_address("auto", "127.0.1.1", here), "192.0.2.7");
  EXPECT_THAT(refusal_of("auto", "127.0.1.1", {here[0]}), HasSubstr("127.0.0.1 (lo)"));
}

TEST(ListenAddress, interfaces_and_own_addresses_are_taken_as_they_are) {
  EXPECT_EQ(choose_listen_address("ib0", "127.0.0.1", here), "10.1.0.7");
  EXPECT_EQ(choose_listen_address("192.0.2.7", "127.0.0.1", here), "192.0.2.7");
  EXPECT_EQ(choose_listen_address("127.0.0.1", "127.0.0.1", here), "127.0.0.1");
  EXPECT_EQ(choose_listen_address("::1", "127.0.0.1", here), "::1");
}

TEST(ListenAddress, another_machines_address_and_an_unknown_interface_are_refused_with_what_there_is) {
  EXPECT_THAT(refusal_of("192.0.2.8", "127.0.0.1"),
              AllOf(HasSubstr("not an address of this machine"), HasSubstr("192.0.2.7 (eth0), 10.1.0.7 (ib0)")));
  EXPECT_THAT(refusal_of("eth1", "127.0.0.1"), HasSubstr("neither an address nor an interface here"));
}

TEST(ListenAddress, a_name_that_does_not_resolve_is_named) {
  try {
    (void)address_towards("nowhere.invalid");
    FAIL() << "it resolves";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("host \"nowhere.invalid\" does not resolve"));
  }
}

TEST(ListenAddress, this_machine_has_a_loopback_address_and_is_reached_from_it) {
  EXPECT_EQ(address_of("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_FALSE(interface_addresses().empty());
}

}  // namespace
}  // namespace maestro
