// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto file = "[student]\nlr = 0.5\nreplicas = 2\n";

JobDocument overridden(const std::vector<std::string>& overrides) {
  return JobDocument::parse(file, "job.toml", overrides);
}

TEST(JobOverrides, replace_values_of_the_file_and_leave_the_rest) {
  const auto student = overridden({"student.lr=0.25"}).root().table("student");
  EXPECT_EQ(student.number("lr", 0), 0.25);
  EXPECT_EQ(student.integer("replicas", 0), 2);
}

TEST(JobOverrides, add_keys_and_tables_the_file_lacks) {
  const auto root = overridden({"train.steps = 9", "a.b.c=true"}).root();
  EXPECT_EQ(root.table("train").integer("steps", 0), 9);
  EXPECT_TRUE(root.table("a").table("b").flag("c", false));
  EXPECT_THAT(root.keys(), ElementsAre("student", "train", "a"));
}

TEST(JobOverrides, of_a_copy_leave_the_document_as_it_is) {
  const JobDocument document = overridden({"student.lr=0.25"});
  JobDocument copy = document.copy();
  copy.override_with("student.lr=1");
  EXPECT_EQ(copy.root().table("student").number("lr", 0), 1);
  EXPECT_EQ(document.root().table("student").number("lr", 0), 0.25);
}

TEST(JobOverrides, a_value_that_is_not_toml_is_a_string) {
  const auto root = overridden({"a=runs/first try", "b=", "c=x=y", "d=\"quoted\"", "e=1\nf=2"}).root();
  EXPECT_EQ(root.text("a", "?"), "runs/first try");
  EXPECT_EQ(root.text("b", "?"), "");
  EXPECT_EQ(root.text("c", "?"), "x=y");
  EXPECT_EQ(root.text("d", "?"), "quoted");
  EXPECT_EQ(root.text("e", "?"), "1\nf=2");
  EXPECT_FALSE(root.has("f"));
}

TEST(JobOverrides, are_among_the_settings_with_every_other_value_and_each_in_one_line) {
  std::string devices = "student.devices=[";
  for (int core = 0; core < 40; ++core) devices += (core > 0 ? ", " : "") + ("\"cpu:" + std::to_string(core) + "\"");
  const auto settings = overridden({"student.lr=0.03", "a.text=two  words\nmore", devices + "]"}).settings();
  EXPECT_EQ(settings.size(), 4u);
  EXPECT_EQ(settings.at("student.lr"), "0.03");
  EXPECT_EQ(settings.at("student.replicas"), "2");
  for (const auto& [key, value] : settings) EXPECT_EQ(value.find('\n'), std::string::npos) << value;
}

TEST(JobOverrides, take_lists_and_inline_tables) {
  const auto root = overridden({"student.devices=[\"cpu:0\", \"cpu:1\"]", "train={steps=3}"}).root();
  EXPECT_THAT(root.table("student").texts("devices", {}), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_EQ(root.table("train").integer("steps", 0), 3);
}

TEST(JobOverrides, an_empty_table_that_would_lose_the_keys_of_another_is_refused_by_name) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return job_error_of([&] { (void)overridden(overrides); });
  };
  EXPECT_EQ(refusal({"student={}"}),
            "--set student={}: the empty table would lose student.lr and 1 more; set single "
            "keys, as in --set student.lr=..., or give a table with all keys");
  EXPECT_THAT(refusal({"data.mix.a.path=a", "data.mix={ }"}), HasSubstr("would lose data.mix.a; set single keys"));
  EXPECT_THAT(refusal({"data.mix.a.path=a", "data.mix.a={}"}),
              HasSubstr("would lose data.mix.a.path; set single keys"));
  EXPECT_TRUE(overridden({"plain={}"}).root().has("plain")) << "a table that the file lacks loses nothing";
  EXPECT_THAT(overridden({"student={type = \"recorded\"}"}).root().table("student").keys(), ElementsAre("type"))
      << "a table replaces another";
}

TEST(JobOverrides, the_last_one_wins) {
  const auto root = overridden({"student.lr=1.0", "student.lr=2.0"}).root();
  EXPECT_EQ(root.table("student").number("lr", 0), 2.0);
  EXPECT_EQ(job_error_of([&] { (void)root.table("student").flag("lr", false); }),
            "--set student.lr=2.0: student.lr: expected true or false, got the number 2");
}

TEST(JobOverrides, errors_name_the_override_instead_of_a_line) {
  const auto doc = overridden({"student.replicas=0", "train={stesp=3}"});
  const auto student = doc.root().table("student");
  EXPECT_EQ(job_error_of([&] { (void)student.integer("replicas", 1, {.min = 1}); }),
            "--set student.replicas=0: student.replicas: must be at least 1, got 0");
  (void)student.number("lr", 0);
  (void)doc.root().table("train").integer("steps", 0);
  EXPECT_EQ(job_error_of([&] { doc.finish(); }),
            "--set train={stesp=3}: train.stesp: unknown key; did you mean 'steps'?");
}

TEST(JobOverrides, an_unknown_table_names_the_override_that_opened_it) {
  const auto doc = overridden({"studnet.lr=1"});
  (void)doc.root().table("student").number("lr", 0);
  (void)doc.root().table("student").integer("replicas", 0);
  EXPECT_EQ(job_error_of([&] { doc.finish(); }), "--set studnet.lr=1: studnet: unknown table; did you mean 'student'?");
}

TEST(JobOverrides, an_error_of_the_file_comes_before_one_of_an_override) {
  const auto doc = overridden({"aaa=1"});
  (void)doc.root().table("student").number("lr", 0);
  EXPECT_THAT(job_error_of([&] { doc.finish(); }), StartsWith("job.toml:3: student.replicas: unknown key"));
}

TEST(JobOverrides, a_number_where_a_string_is_wanted_is_told_to_be_quoted) {
  const auto root = overridden({"data.path=2024"}).root();
  EXPECT_EQ(job_error_of([&] { (void)root.table("data").text("path", ""); }),
            "--set data.path=2024: data.path: expected a string, got the integer 2024; put the value in double quotes "
            "to make it a string");
}

TEST(JobOverrides, one_without_key_or_value_is_refused) {
  EXPECT_THAT(job_error_of([] { (void)overridden({"student.lr"}); }),
              StartsWith("--set student.lr: expected a key and"));
  for (const std::string text : {"=1", ".a=1", "a..b=1", "a.=1", "a b=1", "\"a\"=1"}) {
    EXPECT_THAT(job_error_of([&] { (void)overridden({text}); }), StartsWith("--set " + text + ": \"")) << text;
  }
}

TEST(JobOverrides, one_that_goes_through_a_value_is_refused) {
  EXPECT_EQ(job_error_of([] { (void)overridden({"student.lr.start=1"}); }),
            "--set student.lr.start=1: student.lr: expected a table, but it is the number 0.5");
}

TEST(JobOverrides, appear_in_the_written_document) {
  const auto doc = overridden({"student.lr=0.125", "train.out=runs/x"});
  const auto again = JobDocument::parse(doc.to_toml(), "again.toml").root();
  EXPECT_EQ(again.table("student").number("lr", 0), 0.125);
  EXPECT_EQ(again.table("student").integer("replicas", 0), 2);
  EXPECT_EQ(again.table("train").text("out", ""), "runs/x");
}

}  // namespace
}  // namespace maestro
