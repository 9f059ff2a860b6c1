// SPDX-License-Identifier: Apache-2.0
#include "actors/live/http_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string problem_of(const std::string& text, bool has_keys = false) {
  try {
    check_http_address(text, has_keys);
  } catch (const JobError& problem) {
    return problem.what();
  }
  return "none";
}

TEST(HttpAddress, without_a_host_it_is_this_hosts_alone) {
  for (const char* text : {"8080", ":8080", "127.0.0.1:8080"}) {
    EXPECT_EQ(parse_http_address(text).text(), "127.0.0.1:8080") << text;
  }
  EXPECT_EQ(parse_http_address("10.0.0.3:0").text(), "10.0.0.3:0");
}

TEST(HttpAddress, a_wrong_one_is_refused_in_a_line_that_names_the_option) {
  for (const char* text : {"nonsense", "65536", ":", "a:b", "unix:/tmp/x", "unix:", "99999999999999999999"}) {
    EXPECT_THAT(problem_of(text), AllOf(HasSubstr("--http: "), Not(HasSubstr("\n")))) << text;
  }
}

TEST(HttpAddress, other_hosts_need_keys) {
  EXPECT_THAT(problem_of("0.0.0.0:0"), HasSubstr("--keys"));
  EXPECT_EQ(problem_of("0.0.0.0:0", true), "none");
  EXPECT_EQ(problem_of("127.0.0.1:0"), "none");
  EXPECT_EQ(problem_of(""), "none");
}

TEST(HttpAddress, a_busy_port_is_refused) {
  SocketAddress taken = parse_http_address("0");
  const FileDescriptor listener = listen_at(taken);
  EXPECT_THAT(problem_of(taken.text()), HasSubstr("port is busy"));
}

TEST(HttpAddress, only_names_of_this_host_are_answered) {  // HS-2
  for (const char* host : {"", "localhost", "LocalHost:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:80"}) {
    EXPECT_TRUE(names_this_host(host)) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8080", "10.0.0.3", "localhost.evil.example", "127.0.0.1.nip.io:1"}) {
    EXPECT_FALSE(names_this_host(host)) << host;
  }
}

}  // namespace
}  // namespace maestro
