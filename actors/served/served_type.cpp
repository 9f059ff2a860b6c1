// SPDX-License-Identifier: Apache-2.0
#include "actors/served/served_type.hpp"

#include <chrono>
#include <thread>

#include "actors/rpc/socket_address.hpp"
#include "actors/served/served_connection.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr NumberRange seconds_of_a_day{.min = 0.0, .max = 86400.0, .min_open = true};

std::chrono::milliseconds from_seconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// Refuses an address on another host without keys for TLS.
void check_address(const JobTable& table, const std::string& address, bool keys) {
  try {
    if (keys || on_this_host_only(parse_socket_address(address))) return;
  } catch (const JobError& problem) {
    table.fail("address", problem.what());
  }
  table.fail("address", address + " is not on this host, and is reached only with TLS; name the folder of `maestro " +
                            "keys` in `keys`, or use an address of 127.0.0.1 or unix:/PATH");
}

std::chrono::milliseconds patience_of(const ServedOptions& options, AbsentServer absent) {
  if (absent == AbsentServer::refused) return std::chrono::milliseconds(0);
  return absent == AbsentServer::awaited ? options.first_connect : options.reconnect;
}

/// Reads the module from the server at an address, and waits for a server that is missing.
ServedModule await_module(const SectionTable& section, const ServedOptions& options, const std::string& address,
                          const ServerWait& wait) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds unnoticed(1);
  const auto patience = patience_of(options, wait.absent);
  const auto begin = Clock::now();
  bool noted = !wait.note;
  ServedModule module;
  connect_within(
      patience,
      [&] {
        module = options.connect(address)->open({section.name, 0, false, false});
      },
      [&](std::chrono::milliseconds pause) {
        if (!noted && Clock::now() + pause - begin >= unnoticed) {
          noted = true;
          const auto seconds = std::chrono::ceil<std::chrono::seconds>(patience).count();
          wait.note("section '" + section.name + "' waits for its server at " + printable(address) + ", up to " +
                    std::to_string(seconds) + " s (" + section.name + ".connect_s)");
        }
        std::this_thread::sleep_for(pause);
      });
  return module;
}

ServedModule read_module(const SectionTable& section, const ServedOptions& options, const ServerWait& wait) {
  try {
    ServedModule module = await_module(section, options, options.addresses.front(), wait);
    if (wait.absent != AbsentServer::awaited) return module;
    for (std::size_t at = 1; at < options.addresses.size(); ++at) {
      (void)await_module(section, options, options.addresses[at], wait);
    }
    return module;
  } catch (const JobError& problem) {
    section.table.fail("address", problem.what());
  }
}

}  // namespace

ServedOptions read_served(const SectionTable& section, const ServerWait& wait) {
  const JobTable& table = section.table;
  ServedOptions options;
  options.addresses = table.names(
      "address", "", {"served: address of the module's server, unix:/PATH or HOST:PORT; replicas use several in turn"});
  const std::string keys =
      table.text("keys", "", {"served: the folder of `maestro keys` for TLS, as a server on another host requires"});
  const std::chrono::milliseconds timeout = from_seconds(
      table.number("timeout_s", 60, seconds_of_a_day, {"served: time limit for an answer, computation included", "s"}));
  options.first_connect = from_seconds(
      table.number("connect_s", 30, {.min = 0.0, .max = 86400.0},
                   {"served: time that a run waits at its start for a server that is not there; 0: not at all", "s"}));
  options.reconnect =
      from_seconds(table.number("reconnect_s", 30, {.min = 0.0, .max = 86400.0},
                                {"served: time to wait for a server that has ended; 0: not at all", "s"}));
  if (section.corpus == nullptr) return options;
  if (options.addresses.empty() || options.addresses.front().empty()) {
    throw JobError(table.name() + ".address is not given; name the address of the module's server, such as " +
                   "unix:/tmp/teacher.sock");
  }
  if (table.has("weights")) table.fail("weights", "a served section has the values of its server; leave weights out");
  std::shared_ptr<const KeySet> loaded;
  if (!keys.empty()) loaded = std::make_shared<const KeySet>(load_key_set(keys));
  options.connect = [loaded, timeout](const std::string& address) {
    return std::make_unique<ServedConnection>(ServedAddress{address, loaded, timeout});
  };
  for (const std::string& address : options.addresses) check_address(table, address, !keys.empty());
  options.module = std::make_shared<const ServedModule>(read_module(section, options, wait));
  return options;
}

SectionRegistry program_sections(const ServerWait& wait) {
  SectionRegistry registry = builtin_sections();
  registry.add(served_type,
               "a module that another process computes, such as a PyTorch module; its server reports the ports",
               [wait](const SectionTable& section) -> SectionFactory {
                 return [options = read_served(section, wait)](const SectionContext& context) {
                   return std::make_unique<ServedSection>(context, options);
                 };
               });
  return registry;
}

}  // namespace maestro
