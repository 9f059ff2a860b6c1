// SPDX-License-Identifier: Apache-2.0
// Plug-ins in a program that links maestro's archives; tests/apps/plug_in_test.py covers programs with libmaestro.so.
#include "sections/plug_in/plug_in_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "runtime/job/job_document.hpp"
#include "sections/registry.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

TEST(PlugInLibrary, is_refused_by_a_program_with_maestro_inside) {  // PX-2
  const JobDocument job = JobDocument::parse("plugins = [\"libmine.so\"]\n", "job.toml");
  SectionRegistry registry;
  CorpusRegistry corpora;
  ObserverRegistry observers;
  try {
    add_plug_ins(job.root(), {registry, corpora, observers});
    FAIL() << "two copies of maestro in a process";
  } catch (const JobError& problem) {
    EXPECT_STREQ(problem.what(),
                 "job.toml:1: plugins: libmine.so: this program cannot load plug-ins, as its maestro code is static; "
                 "link it to maestro::shared");
  }
}

TEST(PlugInLibrary, has_an_abi_of_version_headers_compiler_and_library) {  // PX-1
  EXPECT_THAT(std::string(plug_in_abi()),
              ::testing::MatchesRegex("maestro plug-in: maestro [0-9.]+ with headers [0-9a-f]+, (gcc|clang) [0-9]+, "
                                      "lib(stdc|c)[+][+] [0-9]+.*"));
}

TEST(PlugInHost, turns_exceptions_of_builders_and_constructors_into_errors_with_file_and_type) {  // PX-3
  SectionRegistry registry;
  CorpusRegistry corpora;
  ObserverRegistry observers;
  PlugInHost host({registry, corpora, observers}, "libmine.so");
  host.add_section("torn", "its builder throws", [](const SectionTable&) -> SectionFactory { throw 7; });
  host.add_section("late", "its section throws", [](const SectionTable&) -> SectionFactory {
    return [](const SectionContext&) -> std::unique_ptr<Section> { throw std::runtime_error("no memory\nof it"); };
  });
  const JobDocument job = JobDocument::parse("", "job.toml");
  const SectionTable table{"model", job.root().table("model"), job.root(), {}};
  const auto error_of = [](auto call) -> std::string {
    try {
      (void)call();
    } catch (const JobError& problem) {
      return problem.what();
    }
    return {};
  };
  EXPECT_EQ(error_of([&] { return registry.build("torn", table); }),
            "libmine.so: section type 'torn' failed with an exception that is not a std::exception");
  const SectionFactory late = registry.build("late", table);
  EXPECT_EQ(error_of([&] { return late({}); }), "libmine.so: section type 'late' failed: no memory\\nof it");
  EXPECT_THAT(error_of([&] {
                PlugInHost({registry, corpora, observers}, "libother.so").add_section("torn", "again", {});
                return 0;
              }),
              HasSubstr("section type 'torn' is registered twice, by libmine.so and by libother.so"));
  const auto torn = [](const JobTable&, std::uint64_t) -> std::unique_ptr<Corpus> { throw std::runtime_error("torn"); };
  host.add_corpus("mine", "its files are torn", torn);
  const JobDocument data = JobDocument::parse("kind = \"mine\"\n", "job.toml");
  EXPECT_EQ(error_of([&] { return corpora.open(data.root(), 1); }), "libmine.so: data kind 'mine' failed: torn");
  EXPECT_EQ(corpora.open(job.root(), 1), nullptr);
  const auto error_of_another = [&](const std::string& kind) {
    return error_of([&] {
      PlugInHost({registry, corpora, observers}, "libother.so").add_corpus(kind, "again", torn);
      return 0;
    });
  };
  EXPECT_EQ(error_of_another("mine"),
            "data kind 'mine' is registered twice, by libmine.so and by libother.so; choose another name");
  EXPECT_EQ(error_of_another("text"),
            "data kind 'text' is registered twice, by this program and by libother.so; choose another name");
}

}  // namespace
}  // namespace maestro
