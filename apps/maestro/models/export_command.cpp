// SPDX-License-Identifier: Apache-2.0
// `maestro export CHECKPOINT[/SECTION] --to DIR`: a section's model for other programs.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/end_lines.hpp"
#include "runtime/checkpoint/model_export.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "sections/model_folder.hpp"

namespace maestro {

namespace {

struct ExportArguments {
  std::filesystem::path from;
  std::filesystem::path to;
  std::string dtype;
  bool merge = false;
  bool text = false;
  double shard_gb = 5;
};

constexpr double bytes_of_gb = 1e9;

std::optional<WeightDtype> read_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::vector<std::string> names(weight_dtype_names.begin(), weight_dtype_names.end());
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<WeightDtype>(found - names.begin());
  const auto nearest = nearest_name(name, names);
  throw JobError("export --dtype: \"" + printable(name) + "\" is unknown; " +
                 (nearest ? "did you mean " + *nearest + "?" : "it is f32, bf16 or f16"));
}

int run_export(const ExportArguments& arguments, Console& console) {
  ExportOptions options;
  options.dtype = read_dtype(arguments.dtype);
  options.shard_bytes = static_cast<std::uint64_t>(arguments.shard_gb * bytes_of_gb);
  if (arguments.merge) options.merge = merge_adapters;
  if (!arguments.text) options.complete = write_complete_model;
  const CheckpointSection source = resolve_section(arguments.from, !arguments.text).value_or_throw();
  const ExportedModel model = export_section(source.checkpoint, source.section, arguments.to, options).value_or_throw();
  char size[32];
  std::snprintf(size, sizeof size, "%.3g MB", static_cast<double>(model.bytes) / 1e6);
  const std::string sections =
      joined_names(sections_of_model(source.checkpoint, source.section, !arguments.text).value_or_throw());
  console.note(sections + " of " + source.checkpoint.string() + ": " + std::string(model.adapters ? "adapters, " : "") +
               std::string(name_of(model.dtype)) + ", " + size + " in " + std::to_string(model.files) +
               (model.files == 1 ? " file" : " files"));
  print_models({{sections, arguments.to.string()}}, console);
  return 0;
}

}  // namespace

void add_export(Commands& commands) {
  const auto [command, arguments] =
      commands.add("export", "write a checkpoint's model as a folder for other programs", run_export);
  command.add_option("checkpoint", arguments.from, "a checkpoint or a run's folder, with /SECTION if it has several")
      ->required();
  command.add_option("--to", arguments.to, "the folder to make")->required();
  command.add_option("--dtype", arguments.dtype,
                     "f32, bf16 or f16 (default: as the weights that the section began from; for adapters f32)");
  command.add_flag("--merge", arguments.merge, "for a section with lora: the merged model instead of the adapters");
  command.add_flag("--text", arguments.text,
                   "of a vision-language model: only its language model, as a model of its own");
  command.add_option("--shard-gb", arguments.shard_gb, "largest file of weights, in 10^9 bytes")
      ->check(decimal_number(1e-6, 1e6))
      ->capture_default_str();
}

}  // namespace maestro
