// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/libfabric.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "transport/fabric/endpoint.hpp"

namespace maestro {
namespace {

void handler(int /*signal*/) {}

/// Exits with 0 if libfabric was not present before it was loaded, and signal handlers are unchanged.
[[noreturn]] void load_beside_handlers() {
  if (dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) std::_Exit(1);
  constexpr int own[] = {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGABRT};
  for (const int signal : own) std::signal(signal, handler);
  if (!load_libfabric()) std::_Exit(2);
  if (dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD) == nullptr) std::_Exit(3);
  const auto endpoint = Endpoint::open({"shm", "127.0.0.1", 1000, [](const EndpointEvent&) {}});  // sets handlers, too
  if (!endpoint) std::_Exit(5);
  for (const int signal : own) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != handler) std::_Exit(4);
  }
  std::_Exit(0);
}

TEST(Libfabric, is_loaded_when_it_is_needed_and_leaves_handlers_of_signals) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // runs in a separate process
  EXPECT_EXIT(load_beside_handlers(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace maestro
