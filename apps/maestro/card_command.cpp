// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/card_command.hpp"

#include <iostream>

#include "apps/maestro/number_options.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/observe/printed_line.hpp"

namespace maestro {

CardCommand::CardCommand(CLI::App& app)
    : command_(app.add_subcommand("card", "write the card of a run: a page with its curves, and card.md")) {
  command_->add_option("run", run_, "the run's folder, train.out")->required();
  command_->add_option("--out", options_.out, "folder for card.md and card.html (default: the run's)");
  command_->add_option("--trace", options_.trace, "the run's trace, for a timeline (default: trace.json of the run)")
      ->check(CLI::ExistingFile);
  command_
      ->add_option("--prompt", options_.prompts,
                   "a text that the models of the checkpoints continue; may be repeated (default: three)")
      ->allow_extra_args(false);
  command_
      ->add_option("--checkpoints", options_.checkpoints,
                   "checkpoints whose models continue the prompts, spread over the run (default: 8; 0: none)")
      ->check(whole_number(0));
}

int CardCommand::run(Console& console) const {
  for (const std::string& prompt : options_.prompts) {
    if (valid_utf8_prefix(prompt) != prompt.size()) throw JobError("card --prompt: the text is no UTF-8");
  }
  const CardFiles files = write_card(run_, options_, console);
  PrintedLine() << files.card.string();
  PrintedLine() << files.page.string();
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace maestro
