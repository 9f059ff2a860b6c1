// SPDX-License-Identifier: Apache-2.0
// `maestro keys FOLDER`: certificates and the token of a job between hosts.
#include <filesystem>

#include "actors/rpc/key_set.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"

namespace maestro {

namespace {

struct KeysArguments {
  std::filesystem::path folder;
  KeySetOptions options;
};

int run_keys(const KeysArguments& arguments, Console& console) {
  make_key_set(arguments.folder, arguments.options);
  console.note(arguments.folder.string() + ": node.pem, node.key, ca.pem and token, valid for " +
               std::to_string(arguments.options.days) +
               " days; copy the folder to the hosts of the job and nowhere else");
  return 0;
}

}  // namespace

void add_keys(Commands& commands) {
  const auto [command, arguments] =
      commands.add("keys", "make certificates and a token for a job between hosts", run_keys);
  command.add_option("folder", arguments.folder, "a new folder; copy it to every host of the job")->required();
  command.add_option("--days", arguments.options.days, "how long they are valid")->check(whole_number(1, 36500));
  command.add_option("--hosts", arguments.options.hosts, "hosts that the certificate names, besides this one")
      ->delimiter(',');
  command.add_flag("--keep-authority", arguments.options.keep_authority, "also keep the authority's key, ca.key");
}

}  // namespace maestro
