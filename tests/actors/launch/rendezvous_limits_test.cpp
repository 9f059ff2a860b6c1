// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "actors/launch/rendezvous.hpp"
#include "actors/rpc/socket_address.hpp"
#include "tests/actors/launch/no_threads.hpp"
#include "tests/job/job_error.hpp"
#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using RendezvousLimits = TemporaryFolder;

TEST_F(RendezvousLimits, of_threads_end_the_start_with_the_process_and_the_remedy) {  // RV-6
  RendezvousOptions options;
  options.address = "unix:" + (folder_ / "meet").string();
  options.own.processes = 2;
  options.hosts = {0, 0};
  RendezvousServer server(std::move(options));
  const NoThreads none;
  const FileDescriptor process = connect_to(parse_socket_address(server.address()), "rendezvous", 5s);
  EXPECT_THAT(job_error_of([&] { server.wait_all(30s); }),
              AllOf(StartsWith("rank 0 lacks a thread or memory for process "), HasSubstr("raise `ulimit -u`")));
}

}  // namespace
}  // namespace maestro
