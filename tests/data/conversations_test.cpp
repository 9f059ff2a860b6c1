// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/conversations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  std::vector<Conversation> good;
  std::vector<std::string> bad;  // id: reason
};

Parsed parse(const std::string& text) {
  Parsed out;
  std::istringstream stream(text);
  parse_conversations(stream, "a.json", [&](const std::string& id, Result<Conversation> conversation) {
    if (conversation.ok()) {
      EXPECT_EQ(conversation->id, id);
      out.good.push_back(*std::move(conversation));
    } else {
      out.bad.push_back(id + ": " + conversation.error().message);
    }
  });
  return out;
}

std::string refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const JobError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string entry(const std::string& fields, const std::string& turns) {
  return "[{\"id\": \"x\"" + fields + ", \"conversations\": [" + turns + "]}]";
}

std::string turn(const std::string& from, const std::string& value) {
  return R"({"from": ")" + from + R"(", "value": ")" + value + "\"}";
}

const std::string question = turn("human", "Why?");
const std::string answer = turn("gpt", "So.");

TEST(Conversations, reads_pictures_and_turns_in_order) {
  const Parsed parsed = parse(R"([
    {"id": "one", "image": "a.png", "conversations": [
      {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."},
      {"from": "human", "value": "Sure?"}, {"from": "gpt", "value": "Yes."}]},
    {"id": 7, "images": ["b.png", "c/d.jpg"], "model": null, "conversations": [
      {"from": "user", "value": "<image> or <image>?"}, {"from": "assistant", "value": "Either."}]},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}])");
  ASSERT_THAT(parsed.bad, testing::IsEmpty());
  ASSERT_EQ(parsed.good.size(), 3u);
  EXPECT_EQ(parsed.good[0].id, "one");
  EXPECT_THAT(parsed.good[0].images, ElementsAre("a.png"));
  EXPECT_THAT(parsed.good[0].turns, ElementsAre("<image>\nWhat?", "A cat.", "Sure?", "Yes."));
  EXPECT_EQ(parsed.good[1].id, "7");
  EXPECT_THAT(parsed.good[1].images, ElementsAre("b.png", "c/d.jpg"));
  EXPECT_EQ(parsed.good[2].id, "#3") << "without an id its number names it";
}

TEST(Conversations, placeholders_and_pictures_must_be_as_many) {
  EXPECT_THAT(parse(entry(R"(, "image": ["a", "b"])", turn("human", "<image>") + "," + answer)).bad,
              ElementsAre("x: 1 <image> placeholder, but 2 images"));
  EXPECT_THAT(parse(entry("", turn("human", "<image><image>") + "," + answer)).bad,
              ElementsAre("x: 2 <image> placeholders, but 0 images"));
}

TEST(Conversations, rows_as_llava_has_them_are_repaired_and_name_the_repair) {
  const auto repaired = [](const std::string& fields, const std::string& turns) {
    const Parsed parsed = parse(entry(fields, turns));
    EXPECT_THAT(parsed.bad, testing::IsEmpty());
    return parsed.good.at(0);
  };
  const std::string both = question + "," + answer;
  const Conversation greeted = repaired("", turn("gpt", "Hello") + "," + turn("gpt", "") + "," + both);
  EXPECT_THAT(greeted.turns, ElementsAre("Why?", "So."));
  EXPECT_THAT(greeted.repairs, ElementsAre(RowRepair::answer_dropped));
  const Conversation open = repaired(R"(, "image": ["a", "b"])",
                                     turn("human", "<image>") + "," + answer + "," + turn("human", "<image>and?"));
  EXPECT_THAT(open.turns, ElementsAre("<image>", "So."));
  EXPECT_THAT(open.images, ElementsAre("a")) << "a question that is cut takes its image with it";
  EXPECT_THAT(open.repairs, ElementsAre(RowRepair::question_cut));
  const Conversation told = repaired("", turn("system", "Be kind.") + "," + both);
  EXPECT_EQ(told.system, "Be kind.");
  EXPECT_THAT(told.turns, ElementsAre("Why?", "So."));
  EXPECT_THAT(told.repairs, ElementsAre(RowRepair::system_kept));
  const Conversation bare = repaired(R"(, "image": ["a", "b"])", both + "," + both);
  EXPECT_THAT(bare.turns, ElementsAre("<image>\n<image>\nWhy?", "So.", "Why?", "So."));
  EXPECT_THAT(bare.repairs, ElementsAre(RowRepair::images_first));
  const Conversation all = repaired(
      R"(, "image": "a")", turn("gpt", "Hello") + "," + turn("system", "Be kind.") + "," + both + "," + question);
  EXPECT_THAT(all.turns, ElementsAre("<image>\nWhy?", "So."));
  EXPECT_THAT(all.repairs, ElementsAre(RowRepair::answer_dropped, RowRepair::question_cut, RowRepair::system_kept,
                                       RowRepair::images_first));
  EXPECT_THAT(repaired("", both).repairs, testing::IsEmpty());
}

TEST(Conversations, every_other_fault_is_named) {
  const auto fault = [](const std::string& fields, const std::string& turns) {
    const Parsed parsed = parse(entry(fields, turns));
    return parsed.bad.size() == 1 ? parsed.bad[0] : std::to_string(parsed.bad.size()) + " bad";
  };
  EXPECT_EQ(fault("", ""), "x: the conversation is empty");
  EXPECT_EQ(fault("", question), "x: the conversation ends without an answer");
  EXPECT_EQ(fault("", answer), "x: the conversation lacks a question");
  EXPECT_THAT(fault("", question + "," + question), HasSubstr("conversations[1] is from \"human\", but"));
  EXPECT_THAT(fault("", question + "," + answer + "," + answer),
              HasSubstr("conversations[2] is from \"gpt\", but questions and answers must take turns"));
  EXPECT_THAT(fault("", turn("Human", "Hi")), HasSubstr("valid are human, user, gpt, assistant and system"));
  const std::string system = turn("system", "Be kind.");
  EXPECT_EQ(fault("", system), "x: the conversation lacks a question");
  EXPECT_THAT(fault("", system + "," + system), HasSubstr("conversations[1] is from \"system\", but a single"));
  EXPECT_THAT(fault("", question + "," + answer + "," + system), HasSubstr("conversations[2] is from \"system\", but"));
  EXPECT_THAT(fault("", turn("system", "<image>")), HasSubstr("is from \"system\" and has <image>"));
  EXPECT_THAT(fault("", turn("gpt", "<image>")), HasSubstr("is from \"gpt\" and has <image>"));
  EXPECT_EQ(fault("", question + "," + turn("gpt", "")), "x: conversations[1] is an empty answer");
  EXPECT_EQ(fault("", turn("human", "") + "," + answer), "0 bad") << "a question may be empty";
  EXPECT_THAT(fault("", question + "," + turn("gpt", "<image>")),
              HasSubstr("conversations[1] is from \"gpt\" and has <image>; only questions may"));
  EXPECT_THAT(fault("", "3"), HasSubstr("needs the strings \"from\" and \"value\""));
  EXPECT_THAT(fault("", R"({"from": "human", "value": 3})"), HasSubstr("needs the strings"));
  EXPECT_THAT(fault(R"(, "image": 3)", question), HasSubstr("\"image\" must be an image name"));
  EXPECT_THAT(fault(R"(, "image": [""])", question), HasSubstr("\"image\" must be an image name"));
}

TEST(Conversations, an_entry_that_is_no_conversation_does_not_stop_the_others) {
  const Parsed parsed = parse("[3, [], \"text\", {}, {\"conversations\": 4}, {\"id\": \"y\", \"conversations\": [" +
                              question + "," + answer + "]}]");
  EXPECT_THAT(parsed.bad, ElementsAre("#1: the entry is not an object", "#2: the entry is not an object",
                                      "#3: the entry is not an object", "#4: the list \"conversations\" is missing",
                                      "#5: the list \"conversations\" is missing"));
  ASSERT_EQ(parsed.good.size(), 1u);
  EXPECT_EQ(parsed.good[0].id, "y");
}

TEST(Conversations, what_is_no_list_is_refused) {
  EXPECT_THAT(refusal("{\"a\": 1}"), HasSubstr("a.json is not a list of conversations"));
  EXPECT_THAT(refusal("3"), HasSubstr("a.json is not a list of conversations"));
  EXPECT_EQ(refusal("[]"), "accepted");
}

TEST(Conversations, broken_json_is_refused_with_the_place) {
  EXPECT_THAT(refusal("[\n{\"id\": }\n]"), AllOf(HasSubstr("a.json:2 is not valid JSON"), HasSubstr("at column 8")));
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[{\"id\": \"caf\xe9\"}]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[] []"), HasSubstr("not valid JSON"));
}

TEST(Conversations, a_speaker_is_shown_in_one_short_line) {
  const Parsed parsed = parse(entry("", R"({"from": "a\nb)" + std::string(5000, 'x') + R"(", "value": "c"})"));
  ASSERT_EQ(parsed.bad.size(), 1u);
  const std::string told = parsed.bad[0];
  EXPECT_THAT(told,
              AllOf(HasSubstr("is from \"a\\nbxxx"), HasSubstr("valid are human, user, gpt, assistant and system")));
  EXPECT_LT(told.size(), 400u);
}

TEST(Conversations, a_missing_file_is_named_with_what_does_exist) {
  try {
    read_conversations("/no/such.json", [](const std::string&, const Result<Conversation>&) {});
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/no/such.json does not exist"), HasSubstr("the part that exists is /")));
  }
}

TEST(Conversations, a_file_is_what_its_name_and_first_character_say) {
  const TempFolder folder;
  const auto read = [&](const char* name, const std::string& content) -> std::string {
    int found = 0;
    const auto path = folder.write(name, content);
    try {
      read_conversations(path.string(), [&](const std::string&, const Result<Conversation>&) { ++found; });
    } catch (const JobError& error) {
      return error.what();
    }
    return std::to_string(found);
  };
  const std::string mark = "\xef\xbb\xbf", one = R"({"conversations": []})";
  EXPECT_EQ(read("a.json", mark + "[" + one + "]"), "1");
  EXPECT_EQ(read("a.jsonl", mark + one + "\n" + mark + one), "2");
  EXPECT_THAT(read("a.parquet", "PAR1"), HasSubstr("a.parquet is Parquet, and conversations about images are read from "
                                                   "JSON; convert its rows to JSON Lines, as by pandas"));
  EXPECT_THAT(read("a.csv", "a,b"), HasSubstr("a.csv:1: a table (.csv) is not read"));
}

TEST(ConversationsFuzz, whatever_the_bytes_every_conversation_handed_out_is_whole) {
  const std::string whole = entry(R"(, "image": ["a.png", "b.png"])",
                                  turn("human", "<image>x<image>") + "," + answer + "," + question + "," + answer);
  constexpr std::uint64_t seed = 19;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int refused = 0;
  int handed_out = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = whole;
    for (std::uint64_t edits = random() % 3 + 1; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() & 0xff);
          break;
        case 1:
          text.erase(at, random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 12));
      }
      if (text.empty()) text = "[";
    }
    try {
      for (const Conversation& conversation : parse(text).good) {
        ++handed_out;
        EXPECT_GE(conversation.turns.size(), 2u);
        EXPECT_EQ(conversation.turns.size() % 2, 0u);
      }
    } catch (const JobError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(handed_out, 100);
}

}  // namespace
}  // namespace maestro
