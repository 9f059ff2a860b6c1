// SPDX-License-Identifier: Apache-2.0
// `maestro card RUN`: the card of a run, card.md and card.html.
#include <filesystem>
#include <iostream>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/watch/card_files.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/observe/printed_line.hpp"

namespace maestro {

namespace {

struct CardArguments {
  std::filesystem::path run;
  CardOptions options;
};

int run_card(const CardArguments& arguments, Console& console) {
  for (const std::string& prompt : arguments.options.prompts) {
    if (valid_utf8_prefix(prompt) != prompt.size()) throw JobError("card --prompt: the text is not UTF-8");
  }
  const CardFiles files = write_card(arguments.run, arguments.options, console);
  PrintedLine() << files.card.string();
  PrintedLine() << files.page.string();
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace

void add_card(Commands& commands) {
  const auto [command, arguments] =
      commands.add("card", "write the card of a run: a page with its curves, and card.md", run_card);
  command.add_option("run", arguments.run, "the run's folder, train.out")->required();
  command.add_option("--out", arguments.options.out, "folder for card.md and card.html (default: the run's)");
  command
      .add_option("--trace", arguments.options.trace,
                  "the run's trace, for a timeline (default: trace.json of the run)")
      ->check(CLI::ExistingFile);
  command
      .add_option("--prompt", arguments.options.prompts,
                  "a text that the models of the checkpoints continue; may be repeated (default: three)")
      ->allow_extra_args(false);
  command
      .add_option("--checkpoints", arguments.options.checkpoints,
                  "checkpoints whose models continue the prompts, spread over the run (default: 8; 0: none)")
      ->check(whole_number(0));
}

}  // namespace maestro
