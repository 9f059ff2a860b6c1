// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_document.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

JobDocument document(const std::string& text) {
  return JobDocument::parse(text, "job.toml");
}

TEST(JobTable, reads_every_kind_of_value) {
  const auto root =
      document("[a]\ni = 3\nx = 1.5\nn = 2\nf = true\nt = \"hi\"\nl = [\"p\", \"q\"]\nc = \"red\"\n").root();
  const auto a = root.table("a");
  EXPECT_EQ(a.integer("i", 0), 3);
  EXPECT_EQ(a.number("x", 0), 1.5);
  EXPECT_EQ(a.number("n", 0), 2.0);
  EXPECT_TRUE(a.flag("f", false));
  EXPECT_EQ(a.text("t", ""), "hi");
  EXPECT_THAT(a.texts("l", {}), ElementsAre("p", "q"));
  EXPECT_EQ(a.choice("c", "blue", {"red", "blue"}), "red");
  EXPECT_NO_THROW(root.finish());
}

TEST(JobTable, a_name_is_a_list_of_one_and_numbers_are_checked_one_by_one) {
  const auto a = document("[a]\none = \"p\"\nmany = [\"p\", \"q\"]\nw = [2, 0.5]\n").root().table("a");
  EXPECT_THAT(a.names("one", "d"), ElementsAre("p"));
  EXPECT_THAT(a.names("many", "d"), ElementsAre("p", "q"));
  EXPECT_THAT(a.names("none", "d"), ElementsAre("d"));
  EXPECT_THAT(a.numbers("w"), ElementsAre(2, 0.5));
  EXPECT_TRUE(a.numbers("none").empty());
  EXPECT_EQ(job_error_of([&] { (void)a.numbers("w", {.min = 1}); }),
            "job.toml:4: a.w: element 2 must be at least 1, got 0.5");
  EXPECT_EQ(job_error_of([&] { (void)a.numbers("many"); }),
            "job.toml:3: a.many: expected a list of numbers, but element 1 is a string \"p\"");
}

TEST(JobTable, a_word_may_stand_for_a_list_of_pairs) {
  const std::vector<std::pair<std::string, NumberPairs>> words{{"few", {{1, 1}}}, {"many", {{1, 1}, {9, 0.5}}}};
  const auto a = document("[a]\np = [[64, 1.0], [128, 0.5]]\nw = \"many\"\nx = \"mani\"\ny = [[1, 2], [3]]\nz = 4\n")
                     .root()
                     .table("a");
  EXPECT_THAT(a.pairs_or_word("p", words), ElementsAre(std::pair(64.0, 1.0), std::pair(128.0, 0.5)));
  EXPECT_THAT(a.pairs_or_word("w", words), ElementsAre(std::pair(1.0, 1.0), std::pair(9.0, 0.5)));
  EXPECT_TRUE(a.pairs_or_word("none", words).empty());
  EXPECT_EQ(job_error_of([&] { (void)a.pairs_or_word("x", words); }),
            "job.toml:4: a.x: \"mani\" is not one of few, many; did you mean 'many'?");
  EXPECT_THAT(job_error_of([&] { (void)a.pairs_or_word("y", words); }),
              StartsWith("job.toml:5: a.y: expected a list of pairs of numbers, but element 2 is "));
  EXPECT_EQ(job_error_of([&] { (void)a.pairs_or_word("z", words); }),
            "job.toml:6: a.z: expected a list of pairs of numbers, got the integer 4");
}

TEST(JobTable, absent_keys_and_tables_give_the_fallbacks) {
  const auto b = document("[a]\n").root().table("b");
  EXPECT_EQ(b.integer("i", 7), 7);
  EXPECT_EQ(b.number("x", 0.5), 0.5);
  EXPECT_TRUE(b.flag("f", true));
  EXPECT_EQ(b.text("t", "d"), "d");
  EXPECT_THAT(b.texts("l", {"d"}), ElementsAre("d"));
  EXPECT_EQ(b.choice("c", "blue", {"red", "blue"}), "blue");
  EXPECT_FALSE(b.has("i"));
  EXPECT_TRUE(b.keys().empty());
}

TEST(JobTable, a_wrong_type_names_file_line_key_and_value) {
  const auto a =
      document("[a]\n\ni = \"eight\"\nx = true\nf = 1\nt = 2\nl = \"p\"\nm = [\"p\", 3]\nr = 2.5\n").root().table("a");
  EXPECT_EQ(job_error_of([&] { (void)a.integer("i", 0); }),
            "job.toml:3: a.i: expected an integer, got a string \"eight\"");
  EXPECT_EQ(job_error_of([&] { (void)a.number("x", 0); }), "job.toml:4: a.x: expected a number, got the flag true");
  EXPECT_EQ(job_error_of([&] { (void)a.flag("f", false); }),
            "job.toml:5: a.f: expected true or false, got the integer 1");
  EXPECT_EQ(job_error_of([&] { (void)a.text("t", ""); }), "job.toml:6: a.t: expected a string, got the integer 2");
  EXPECT_EQ(job_error_of([&] { (void)a.texts("l", {}); }),
            "job.toml:7: a.l: expected a list of strings, got a string \"p\"");
  EXPECT_EQ(job_error_of([&] { (void)a.texts("m", {}); }),
            "job.toml:8: a.m: expected a list of strings, but element 2 is the integer 3");
  EXPECT_EQ(job_error_of([&] { (void)a.integer("r", 0); }), "job.toml:9: a.r: expected an integer, got the number 2.5");
  EXPECT_EQ(job_error_of([&] { (void)a.table("i"); }), "job.toml:3: a.i: expected a table, got a string \"eight\"");
}

TEST(JobTable, a_value_out_of_range_is_told_the_range) {
  const auto a = document("[a]\ni = 70000\nx = 1\nn = nan\nz = 0.0\n").root().table("a");
  EXPECT_EQ(job_error_of([&] { (void)a.integer("i", 0, {.min = 0, .max = 65535}); }),
            "job.toml:2: a.i: must be from 0 to 65535, got 70000");
  EXPECT_EQ(job_error_of([&] { (void)a.integer("i", 0, {.min = 70001}); }),
            "job.toml:2: a.i: must be at least 70001, got 70000");
  EXPECT_EQ(job_error_of([&] { (void)a.integer("i", 0, {.max = 1}); }),
            "job.toml:2: a.i: must be at most 1, got 70000");
  EXPECT_EQ(job_error_of([&] { (void)a.number("x", 0, {.min = 0, .max = 1, .max_open = true}); }),
            "job.toml:3: a.x: must be at least 0 and less than 1, got 1");
  EXPECT_EQ(job_error_of([&] { (void)a.number("n", 0); }), "job.toml:4: a.n: must be finite, got nan");
  EXPECT_EQ(job_error_of([&] { (void)a.number("z", 0, {.min = 0, .min_open = true}); }),
            "job.toml:5: a.z: must be greater than 0, got 0");
}

TEST(JobTable, the_ends_of_a_range_are_allowed_unless_open) {
  const auto root = document("i = 3\nx = 1.0\n").root();
  EXPECT_EQ(root.integer("i", 0, {.min = 3, .max = 3}), 3);
  EXPECT_EQ(root.number("x", 0, {.min = 1, .max = 1}), 1.0);
}

TEST(JobTable, a_choice_out_of_the_list_is_told_the_list_and_the_nearest) {
  const auto root = document("schedule = \"cosin\"\ncolour = \"blue\"\n").root();
  EXPECT_EQ(job_error_of([&] {
              (void)root.choice("schedule", "", {"cosine", "linear"});
            }),
            "job.toml:1: schedule: \"cosin\" is not one of cosine, linear; did you mean 'cosine'?");
  EXPECT_EQ(job_error_of([&] {
              (void)root.choice("colour", "", {"cosine", "linear"});
            }),
            "job.toml:2: colour: \"blue\" is not one of cosine, linear");
}

TEST(JobTable, keys_come_in_the_order_of_the_file) {
  const auto root = document("[zeta]\n[alpha]\n[mid]\nb = 1\na = 2\n").root();
  EXPECT_THAT(root.keys(), ElementsAre("zeta", "alpha", "mid"));
  EXPECT_THAT(root.table("mid").keys(), ElementsAre("b", "a"));
}

TEST(JobTable, tables_with_a_key_come_in_the_same_order_and_stay_unread) {
  const JobDocument job = document("type = 1\n[zeta]\ntype = 2\n[alpha]\nb = 1\n[mid]\ntype = \"x\"\n");
  EXPECT_THAT(job.root().tables_with("type"), ElementsAre("zeta", "mid"));
  EXPECT_THAT(job.root().tables_with("none"), IsEmpty());
  EXPECT_NE(job_error_of([&] { job.finish(); }).find("unknown"), std::string::npos);
}

TEST(JobTable, a_failed_check_stands_at_the_key_that_is_present) {
  const auto a = document("[x]\n[a]\nwidth = 130\n").root().table("a");
  EXPECT_EQ(job_error_of([&] { a.fail_among({"heads", "width"}, "bad"); }), "job.toml:3: a.width: bad");
  EXPECT_EQ(job_error_of([&] { a.fail("heads", "bad"); }), "job.toml:2: a.heads: bad");
  EXPECT_EQ(job_error_of([&] { a.fail_among({"p", "q"}, "bad"); }), "job.toml:2: a.p: bad");
}

TEST(JobTable, a_check_on_an_absent_table_names_the_file) {
  const auto b = document("[a]\n").root().table("b");
  EXPECT_EQ(job_error_of([&] { b.fail("k", "missing"); }), "job.toml: b.k: missing");
}

TEST(JobTable, outlives_its_document) {
  const auto table = document("[a]\ni = 4\n").root().table("a");
  EXPECT_EQ(table.integer("i", 0), 4);
}

TEST(JobDocument, an_unknown_key_is_an_error_with_the_nearest_known_one) {
  const auto doc = document("[teacher]\n\nmicro_bach = 4\n");
  (void)doc.root().table("teacher").integer("micro_batch", 1);
  EXPECT_EQ(job_error_of([&] { doc.finish(); }),
            "job.toml:3: teacher.micro_bach: unknown key; did you mean 'micro_batch'?");
}

TEST(JobDocument, an_unknown_table_is_an_error_with_the_nearest_known_one) {
  const auto doc = document("[studnet]\nlr = 1.0\n");
  (void)doc.root().table("student").number("lr", 1);
  EXPECT_EQ(job_error_of([&] { doc.finish(); }), "job.toml:1: studnet: unknown table; did you mean 'student'?");
}

TEST(JobDocument, a_key_under_the_wrong_heading_is_told_the_right_one) {
  const auto doc = document("[data]\nglobal_batch = 4\n[train]\n");
  (void)doc.root().table("train").integer("global_batch", 1);
  (void)doc.root().table("data").text("path", "");
  EXPECT_EQ(job_error_of([&] { doc.finish(); }),
            "job.toml:2: data.global_batch: unknown key; did you mean 'train.global_batch'?");
}

TEST(JobDocument, an_unknown_key_like_no_other_gets_the_list) {
  const auto doc = document("[data]\nxyzzy = 4\n");
  (void)doc.root().table("data").text("path", "");
  (void)doc.root().table("data").text("kind", "");
  EXPECT_EQ(job_error_of([&] { doc.finish(); }), "job.toml:2: data.xyzzy: unknown key; known here: kind, path");
}

TEST(JobDocument, the_first_unknown_key_of_the_file_is_reported) {
  const auto doc = document("[b]\nqqq = 1\n[a]\nrrr = 2\n");
  (void)doc.root().table("a");
  (void)doc.root().table("b");
  EXPECT_THAT(job_error_of([&] { doc.finish(); }), StartsWith("job.toml:2: b.qqq: unknown key; no keys are allowed"));
}

TEST(JobDocument, an_unread_key_in_a_nested_table_is_found) {
  const auto doc = document("[a.b.c]\nx = 1\ny = 2\n");
  (void)doc.root().table("a").table("b").table("c").integer("x", 0);
  EXPECT_EQ(job_error_of([&] { doc.finish(); }), "job.toml:3: a.b.c.y: unknown key; did you mean 'x'?");
}

TEST(JobDocument, an_array_of_tables_is_no_table) {
  const auto doc = document("[[student]]\nlr = 1\n");
  EXPECT_EQ(job_error_of([&] { (void)doc.root().table("student"); }),
            "job.toml:1: student: expected a table, got a list");
}

TEST(JobDocument, a_syntax_error_names_line_and_column) {
  const auto error = job_error_of([] { (void)document("[a]\nb = = 1\n"); });
  EXPECT_THAT(error, StartsWith("job.toml:2:5: not valid TOML: "));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(JobDocument, a_key_given_twice_is_a_syntax_error) {
  EXPECT_THAT(job_error_of([] { (void)document("a = 1\na = 2\n"); }), StartsWith("job.toml:2:"));
}

TEST(JobDocument, odd_keys_and_values_stay_on_one_line) {
  const auto doc = document("\"a\\nb\" = 1\nc = \"x\\ny\"\n");
  EXPECT_THAT(job_error_of([&] { doc.finish(); }), StartsWith("job.toml:1: \"a\\nb\": unknown key"));
  EXPECT_EQ(job_error_of([&] { (void)doc.root().flag("c", false); }),
            "job.toml:2: c: expected true or false, got a string \"x\\ny\"");
}

TEST(JobDocument, refuses_a_line_so_long_that_its_nesting_could_exhaust_the_stack) {
  std::string text = "ok = 1\n[a";
  for (int i = 0; i < 100000; ++i) text += ".a";
  EXPECT_EQ(job_error_of([&] { (void)document(text + "]\n"); }),
            "job.toml:2: line longer than 8192 bytes; break it up");
}

TEST(JobTable, a_list_of_tables_is_read_as_strictly_as_a_table) {
  const auto names_in = [](const std::string& text) {
    const JobDocument read = document(text);
    std::vector<std::string> names;
    for (const JobTable& host : read.root().tables("host")) {
      names.push_back(host.text("name", "none") + "/" + std::to_string(host.integer("count", 1, {1, 8})));
    }
    read.finish();
    return names;
  };
  const auto error_in = [&](const std::string& text) { return job_error_of([&] { (void)names_in(text); }); };
  EXPECT_THAT(names_in("[[host]]\nname = \"a\"\n[[host]]\ncount = 2\n"), ElementsAre("a/1", "none/2"));
  EXPECT_THAT(names_in("host = [{name = \"b\"}]"), ElementsAre("b/1"));
  EXPECT_THAT(names_in(""), IsEmpty());
  const std::string first = "[[host]]\nname = \"a\"\n";
  EXPECT_EQ(error_in(first + "[[host]]\nnaem = 1\n"), "job.toml:4: host[1].naem: unknown key; did you mean 'name'?");
  EXPECT_EQ(error_in(first + "[[host]]\ncount = 9\n"), "job.toml:4: host[1].count: must be from 1 to 8, got 9");
  EXPECT_EQ(error_in(first + "[host.inside]\n"), "job.toml:3: host[0].inside: unknown table; known here: count, name");
  EXPECT_EQ(error_in("[host]\nname = \"a\"\n"), "job.toml:1: host: expected a list of tables, got a table");
  EXPECT_THAT(error_in("host = [{name = \"a\"}, 3]"), HasSubstr("element 2 is the integer 3"));
  const JobDocument read = document(first);
  EXPECT_THAT(job_error_of([&] { read.root().tables("host")[0].fail("count", "missing"); }),
              StartsWith("job.toml:1: host[0].count: missing"));
}

TEST(JobDocument, refuses_a_file_too_large_for_a_job) {
  std::string text;
  while (text.size() <= (1u << 20)) text += "# padding\n";
  EXPECT_EQ(job_error_of([&] { (void)document(text); }), "job.toml: larger than 1 MiB; is this a job file?");
}

TEST(JobDocument, the_written_document_reads_back_the_same) {
  const auto doc = document("[student]\nlr = 0.1\nsmall = 1e-300\ndevices = [\"cpu:0\"]\nname = \"a\\\"b\"\nn = -7\n");
  const auto again = JobDocument::parse(doc.to_toml(), "again.toml").root().table("student");
  EXPECT_EQ(again.number("lr", 0), 0.1);
  EXPECT_EQ(again.number("small", 0), 1e-300);
  EXPECT_THAT(again.texts("devices", {}), ElementsAre("cpu:0"));
  EXPECT_EQ(again.text("name", ""), "a\"b");
  EXPECT_EQ(again.integer("n", 0), -7);
}

TEST(JobDocument, a_written_document_has_quotes_where_toml_needs_them) {
  const std::string text =
      "name = \"first\\nsecond \\u0007\"\nwhen = 2026-01-02T03:04:05Z\nlist = [1, {a = 2.0}, [inf]]\nempty = []\n"
      "[data]\n\"it's\" = 0.1\n'a\"b' = 1\nspeed = 0.329\n[data.\"of two\"]\n[[host]]\nname = 'a'\n[[host]]\n";
  EXPECT_EQ(
      document(text).to_toml(),
      "empty = []\nlist = [1, { a = 2.0 }, [inf]]\nname = \"\"\"\nfirst\nsecond \\u0007\"\"\"\n"
      "when = 2026-01-02T03:04:05Z\n\n[data]\n\"a\\\"b\" = 1\n\"it's\" = 0.1\nspeed = 0.329\n\n[data.\"of two\"]\n"
      "\n[[host]]\nname = \"a\"\n\n[[host]]\n");
}

TEST(JobDocument, a_string_longer_than_a_line_may_be_is_written_in_lines) {
  std::string text = "name = \"\"\"";
  for (int part = 0; part < 6; ++part) {
    text += 'x';  // a break skips blanks, so no part begins with one
    for (int pair = 0; pair < 1000; ++pair) text += part % 2 == 0 ? "\u00e4" : "  ";
    text += "\\\n";
  }
  const JobDocument job = document(text + "\"\"\"\n");
  const std::string name = job.root().text("name", "");
  ASSERT_EQ(name.size(), 12006u);
  EXPECT_EQ(JobDocument::parse(job.to_toml(), "again.toml").root().text("name", ""), name);
}

class JobFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("maestro_job_" + std::to_string(getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "distil.toml") << "[train]\nsteps = 5\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(JobFile, loads_from_disk) {
  EXPECT_EQ(JobDocument::load(folder_ / "distil.toml").root().table("train").integer("steps", 0), 5);
}

TEST_F(JobFile, a_missing_file_is_not_found_and_suggests_its_neighbour) {
  const auto path = folder_ / "distill.toml";
  try {
    (void)JobDocument::load(path);
    FAIL() << "a missing file was read";
  } catch (const JobError& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean"));
    EXPECT_THAT(error.what(), HasSubstr("distil.toml'?"));
  }
}

TEST_F(JobFile, a_folder_is_no_job_file) {
  EXPECT_THAT(job_error_of([&] { (void)JobDocument::load(folder_); }), HasSubstr("a folder, not a job file"));
}

}  // namespace
}  // namespace maestro
