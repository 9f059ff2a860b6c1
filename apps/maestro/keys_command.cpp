// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/keys_command.hpp"

#include "apps/maestro/number_options.hpp"

namespace maestro {

KeysCommand::KeysCommand(CLI::App& app)
    : command_(app.add_subcommand("keys", "make certificates and a token for a job between hosts")) {
  command_->add_option("folder", folder_, "a new folder; copy it to every host of the job")->required();
  command_->add_option("--days", options_.days, "how long they are valid")->check(whole_number(1, 36500));
  command_->add_option("--hosts", options_.hosts, "hosts that the certificate names, besides this one")->delimiter(',');
  command_->add_flag("--keep-authority", options_.keep_authority, "also keep the authority's key, ca.key");
}

int KeysCommand::run(Console& console) const {
  make_key_set(folder_, options_);
  console.note(folder_.string() + ": node.pem, node.key, ca.pem and token, valid for " + std::to_string(options_.days) +
               " days; copy the folder to the hosts of the job and nowhere else");
  return 0;
}

}  // namespace maestro
