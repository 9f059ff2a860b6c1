// SPDX-License-Identifier: Apache-2.0
// Fuzz target for job files: text, overrides and every reader. A line "#set a.b=c" is an override as well as a comment.
#include <sstream>
#include <string>
#include <vector>

#include "fuzz_target.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/job/plan_reader.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro::fuzz {
namespace {

std::vector<std::string> overrides_in(const std::string& text) {
  constexpr std::string_view mark = "#set ";
  std::vector<std::string> overrides;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(mark)) overrides.push_back(line.substr(mark.size()));
  }
  return overrides;
}

/// Calls every reader separately: an error in one table hides nothing in the next.
void read_tables(const JobTable& root) {
  accepts([&] { static_cast<void>(read_name(root)); });
  accepts([&] { static_cast<void>(read_train(root.table("train"))); });
  accepts([&] { static_cast<void>(read_data(root.table("data"))); });
  accepts([&] { static_cast<void>(read_emulation(root.table("emulation"))); });
  accepts([&] { static_cast<void>(read_schedule(root.table("schedule"))); });
  accepts([&] { static_cast<void>(read_guard(root.table("guard"))); });
  accepts([&] { static_cast<void>(read_transport(root.table("transport"))); });
  accepts([&] { static_cast<void>(read_plan(root.table("plan"))); });
  for (const char* name : {"teacher", "student"}) {
    const JobTable section = root.table(name);
    accepts([&] { static_cast<void>(read_type(section, "decoder")); });
    accepts([&] { static_cast<void>(read_section(section, name)); });
    accepts([&] { static_cast<void>(read_decoder(section)); });
  }
}

void check_written(const JobDocument& document) {
  const std::string written = document.to_toml();
  const auto settings = document.settings();
  const bool same = accepts([&] {
    require(JobDocument::parse(written, "written.toml").settings() == settings,
            "a written job reads back as the same settings", written);
  });
  require(same, "a written job is a job", written);
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const JobDocument document = JobDocument::parse(text, "job.toml", fuzz::overrides_in(text));
    fuzz::read_tables(document.root());
    fuzz::check_written(document);
    document.finish();
  });
  return 0;
}
