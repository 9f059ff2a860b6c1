// SPDX-License-Identifier: Apache-2.0
#include "actors/served/served_type.hpp"

#include <thread>

#include "actors/rpc/socket_address.hpp"
#include "actors/served/served_connection.hpp"
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

ServedModule read_module(const SectionTable& section, const ServedOptions& options, AbsentServer absent) {
  const auto patience = absent == AbsentServer::awaited ? options.reconnect : std::chrono::milliseconds(0);
  ServedModule module;
  try {
    connect_within(
        patience,
        [&] {
          module = options.connect(options.addresses.front())->open({section.name, 0, false, false});
        },
        [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); });
    return module;
  } catch (const JobError& problem) {
    section.table.fail("address", problem.what());
  }
}

}  // namespace

ServedOptions read_served(const SectionTable& section, AbsentServer absent) {
  const JobTable& table = section.table;
  ServedOptions options;
  options.addresses = table.names(
      "address", "", {"served: address of the module's server, unix:/PATH or HOST:PORT; replicas use several in turn"});
  const std::string keys =
      table.text("keys", "", {"served: the folder of `maestro keys` for TLS, as a server on another host requires"});
  const std::chrono::milliseconds timeout = from_seconds(
      table.number("timeout_s", 60, seconds_of_a_day, {"served: time limit for an answer, computation included", "s"}));
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
  options.module = std::make_shared<const ServedModule>(read_module(section, options, absent));
  return options;
}

SectionRegistry program_sections(AbsentServer absent) {
  SectionRegistry registry = builtin_sections();
  registry.add(served_type,
               "a module that another process computes, such as a PyTorch module; its server reports the ports",
               [absent](const SectionTable& section) -> SectionFactory {
                 return [options = read_served(section, absent)](const SectionContext& context) {
                   return std::make_unique<ServedSection>(context, options);
                 };
               });
  return registry;
}

}  // namespace maestro
