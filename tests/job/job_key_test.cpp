// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_key.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/job/plan_reader.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;

// JK-1
TEST(JobKey, a_reading_declares_type_default_values_unit_and_help) {
  const auto job = JobDocument::parse("[t]\ncount = 7\n", "job.toml");
  const JobTable table = job.root().table("t");
  (void)table.integer("count", 3, {.min = 1, .max = 64}, {"things", "pieces"});
  (void)table.number("rate", 0.5, {.min = 0.0, .max = 1.0, .max_open = true});
  (void)table.flag("on", true);
  (void)table.text("path", "a");
  (void)table.choice("way", "b", {"a", "b"});
  (void)table.texts("names", {});
  const std::vector<JobKey> keys = job.keys();
  ASSERT_EQ(keys.size(), 6u);
  EXPECT_EQ(keys[0].table, "t");
  EXPECT_EQ(keys[0].name, "count");
  EXPECT_EQ(keys[0].type, "integer");
  EXPECT_EQ(keys[0].fallback, "3") << "the default, not the value of this job";
  EXPECT_EQ(keys[0].allowed, "from 1 to 64");
  EXPECT_EQ(keys[0].unit, "pieces");
  EXPECT_EQ(keys[0].help, "things");
  EXPECT_EQ(keys[1].allowed, "at least 0 and less than 1");
  EXPECT_EQ(keys[2].fallback, "true");
  EXPECT_EQ(keys[3].fallback, "\"a\"");
  EXPECT_EQ(keys[4].type, "choice");
  EXPECT_EQ(keys[4].allowed, "a, b");
  EXPECT_EQ(keys[5].fallback, "[]");
}

// JK-1
TEST(JobKey, a_key_that_is_read_twice_is_declared_once_by_the_reader_with_a_help_text) {
  const auto job = JobDocument::parse("[t]\nway = \"a\"\n", "job.toml");
  const JobTable table = job.root().table("t");
  (void)table.text("weights", "");
  (void)table.text("weights", "", {"a folder"});
  (void)table.text("weights", "other");
  (void)table.choice("way", "a", {"a", "b"});
  const std::vector<JobKey> keys = job.keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].help, "a folder");
  EXPECT_EQ(keys[0].fallback, "\"\"");
  EXPECT_EQ(keys[1].type, "choice") << "the text behind a choice is no key of its own";
}

// JK-1
TEST(JobKey, every_key_of_the_readers_has_a_help_text) {
  const auto job = JobDocument::parse("[data]\npath = \"x\"\n", "job.toml");
  const JobTable root = job.root();
  (void)read_name(root);
  (void)read_type(root.table("section"), "");
  (void)read_train(root.table("train"));
  (void)read_data(root.table("data"));
  (void)read_schedule(root.table("schedule"));
  (void)read_guard(root.table("guard"));
  (void)read_transport(root.table("transport"));
  (void)read_emulation(root.table("emulation"));
  (void)read_plan(root.table("plan"));
  (void)read_section(root.table("section"), "section");
  (void)read_decoder(root.table("decoder"));
  EXPECT_THAT(job.keys(), Each(Field(&JobKey::help, Not(IsEmpty()))));
  for (const JobKey& key : job.keys()) EXPECT_EQ(key.help.find('\n'), std::string::npos) << key.name;
}

enum class Colour { red, green, blue };
constexpr std::array<std::string_view, 3> colour_names{"red", "green", "blue"};

TEST(JobKey, a_choice_is_a_value_of_an_enumeration) {
  const auto job = JobDocument::parse("a = \"blue\"\n", "job.toml");
  EXPECT_EQ(job.root().choice("a", Colour::red, colour_names), Colour::blue);
  EXPECT_EQ(job.root().choice("b", Colour::green, colour_names), Colour::green);
  EXPECT_THAT(job.keys(), ElementsAre(Field(&JobKey::fallback, "\"red\""), Field(&JobKey::fallback, "\"green\"")));
}

}  // namespace
}  // namespace maestro
