// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/dataset/document_encoder.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::image_texts {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path references = fs::path(MAESTRO_SOURCE_DIR) / "tests/dataset/references/images";

json read(const fs::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

/// Returns the hash of documents as in record_references.py.
std::string hash_of(const std::vector<Document>& documents) {
  std::uint64_t value = 0xcbf29ce484222325u;
  const auto add = [&](std::uint64_t number) { value = (value ^ number) * 0x100000001b3u; };
  for (const Document& document : documents) {
    for (std::size_t at = 0; at < document.tokens.size(); ++at) {
      add(static_cast<std::uint64_t>(document.tokens[at] & 255));
      add(static_cast<std::uint64_t>(document.tokens[at] >> 8));
      add(document.learned[at]);
    }
    add(256);
  }
  char text[17];
  (void)std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

PrepareOptions options_of(const fs::path& folder) {
  PrepareOptions options;
  options.tokenizer = folder.string();
  options.processor = folder;
  options.chat_template = "auto";
  return options;
}

/// Returns a conversation of texts.json as a record; its images have the type of `medium`.
Record record_of(const json& messages, const Medium& medium = image_medium) {
  Record record;
  for (const json& message : messages) {
    std::string text;
    json content = message["content"];
    for (json& part : content) {
      if (part["type"] == "image") {
        record.image_messages.push_back(record.messages.size());
        part["type"] = medium.type;
      } else {
        text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
      }
    }
    record.messages.push_back({message["role"], text, json{{"content", content}}.dump()});
  }
  return record;
}

Result<std::vector<Document>> encode(const DocumentEncoder& encoder, const Record& record,
                                     const std::vector<ImageSize>& sizes) {
  std::vector<ImagePlan> plans;
  for (const ImageSize size : sizes) {
    plans.push_back(encoder.images()->processor.plan(size, std::ssize(sizes)).value_or_throw());
  }
  RowNotes notes;
  return encoder.encode(record, notes, plans);
}

/// Returns a model of the references with a file replaced, in a folder for the test.
fs::path changed(const TempFolder& folder, const std::string& model, const std::string& file,
                 const std::function<void(json&)>& change) {
  const fs::path made = folder.path() / model;
  fs::remove_all(made);
  fs::copy(references / model, made);
  json content = read(made / file);
  change(content);
  std::ofstream(made / file) << content;
  return made;
}

std::string refusal(const fs::path& folder) {
  try {
    (void)DocumentEncoder(options_of(folder));
    return "accepted";
  } catch (const JobError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    const std::size_t at = text.find(folder.string());
    return at == text.npos ? text : text.substr(at + folder.string().size() + 1);
  }
}

/// IE-1 and CE-7, with the prefix rule and with templates that mark answers.
TEST(ImageTexts, ids_and_targets_equal_those_of_processors) {
  const json texts = read(references / "texts.json");
  const json& conversations = texts["conversations"];
  ASSERT_EQ(conversations.size(), 60U);
  for (const std::string name :
       {"smolvlm", "idefics3", "llava", "llava_onevision", "llava marked", "llava_onevision marked", "internvl",
        "gemma3", "qwen2_5_vl", "qwen3_vl", "qwen2_audio"}) {
    const std::string model = name.substr(0, name.find(' '));
    PrepareOptions options = options_of(references / model);
    if (model != name) options.chat_template = (references / model / "marked.jinja").string();
    const DocumentEncoder encoder(options);
    for (std::size_t at = 0; at < conversations.size(); ++at) {
      const Medium& medium = encoder.images()->processor.medium();
      std::vector<ImageSize> sizes;
      for (const json& size : conversations[at][1]) {
        const std::int64_t samples = size[0].get<std::int64_t>() * 100;
        sizes.push_back(medium == sound_medium ? ImageSize{samples, 16000} : ImageSize{size[0], size[1]});
      }
      const auto documents = encode(encoder, record_of(conversations[at][0], medium), sizes);
      ASSERT_TRUE(documents) << documents.error().message;
      ASSERT_EQ(documents->size(), 1U);
      EXPECT_EQ(documents->front().images, sizes.size());
      ASSERT_EQ(hash_of(*documents), texts[name][at].get<std::string>())
          << name << ", conversation " << at << ": " << encoder.tokenizer().decode(documents->front().tokens);
    }
  }
}

TEST(ImageTexts, of_a_model_with_sounds_take_the_template_of_its_class_without_a_file) {
  const TempFolder folder;
  const fs::path bare = changed(folder, "qwen2_audio", "tokenizer_config.json",
                                [](json& keys) { keys["chat_template"] = "{{ messages[0].content }}"; });
  fs::remove(bare / "chat_template.jinja");
  const json texts = read(references / "texts.json");
  const DocumentEncoder encoder(options_of(bare));
  for (std::size_t at = 0; at < 20; ++at) {
    std::vector<ImageSize> sizes;
    for (const json& size : texts["conversations"][at][1]) sizes.push_back({size[0].get<std::int64_t>() * 100, 16000});
    const auto documents = encode(encoder, record_of(texts["conversations"][at][0], sound_medium), sizes);
    ASSERT_TRUE(documents) << documents.error().message;
    ASSERT_EQ(hash_of(*documents), texts["qwen2_audio"][at].get<std::string>()) << at;
  }
}

/// QA-1 and QA-2.
TEST(ImageTexts, prefixes_and_suffixes_equal_those_of_the_processor) {
  const json texts = read(references / "texts.json");
  const DocumentEncoder encoder(options_of(references / "paligemma"));
  EXPECT_TRUE(encoder.takes_conversations(false));
  std::size_t compared = 0;
  for (std::size_t at = 0; at < texts["conversations"].size(); ++at) {
    const json& conversation = texts["conversations"][at];
    std::vector<ImageSize> sizes;
    for (const json& size : conversation[1]) sizes.push_back({size[0], size[1]});
    const Record record = record_of(conversation[0]);
    const auto documents = encode(encoder, record, sizes);
    if (texts["paligemma"][at] == "refused") {
      EXPECT_THAT(documents.error().message, ::testing::HasSubstr("messages[0] has the role \"system\""));
      continue;
    }
    ++compared;
    ASSERT_TRUE(documents) << documents.error().message;
    ASSERT_EQ(documents->size(), record.messages.size() / 2);
    EXPECT_EQ(documents->back().images, sizes.size());
    ASSERT_EQ(hash_of(*documents), texts["paligemma"][at].get<std::string>())
        << "conversation " << at << ": " << encoder.tokenizer().decode(documents->front().tokens);
  }
  EXPECT_GT(compared, 30U);
}

TEST(ImageTexts, questions_without_an_answer_or_that_spell_the_image_token_have_no_suffix) {
  const DocumentEncoder encoder(options_of(references / "paligemma"));
  const auto error = [&](std::vector<ChatMessage> messages) {
    Record record;
    record.messages = std::move(messages);
    const auto documents = encode(encoder, record, {});
    return documents ? "accepted" : documents.error().message;
  };
  EXPECT_EQ(error({{"user", "What?"}, {"assistant", "A cat."}}), "accepted");
  EXPECT_EQ(error({{"user", "What?"}, {"assistant", "A cat."}, {"user", "Sure?"}}),
            "messages[2] is a question without an answer");
  EXPECT_EQ(error({{"user", "What?"}, {"assistant", ""}}), "messages[1] is an empty answer");
  EXPECT_EQ(error({{"user", "<image>?"}, {"assistant", "A cat."}}),
            "messages[0]: the template's text has 1 places <image> for 0 images; a text that spells it is not a place");
}

/// Returns the error of a conversation about an image of 60 x 40 pixels, without the names of folders.
std::string error_of(const fs::path& folder, const std::string& question = "What?") {
  const DocumentEncoder encoder(options_of(folder));
  Record record =
      record_of(json::parse(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ""}]},
      {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}])"));
  json content = json::parse(record.messages[0].fields);
  content["content"][1]["text"] = record.messages[0].content = question;
  record.messages[0].fields = content.dump();
  const auto documents = encode(encoder, record, {{60, 40}});
  if (documents) return "accepted";
  EXPECT_THAT(documents.error().message, IsOneLine());
  const std::string text = documents.error().message;
  const std::size_t at = text.find(folder.string());
  return at == text.npos ? text : text.substr(at + folder.string().size() + 1);
}

/// IE-2.
TEST(ImageTexts, other_numbers_of_tokens_than_of_rows_are_refused) {
  const TempFolder folder;
  const std::string file = "processor_config.json";
  const auto with = [&](const char* model, const char* key, const json& value) {
    return error_of(changed(folder, model, file, [&](json& content) { content[key] = value; }));
  };
  EXPECT_EQ(with("smolvlm", "image_seq_len", 5),
            "processor_config.json: processor and model disagree: an image of 60 x 40 pixels brings 28 rows, but its "
            "text has 35 places; image_seq_len is 5, and the model makes 4 rows of a tile of 32 x 32 pixels");
  EXPECT_EQ(with("idefics3", "image_seq_len", nullptr),
            "processor_config.json: processor and model disagree: an image of 60 x 40 pixels brings 28 rows, but its "
            "text has 1183 places; image_seq_len is 169 by default, and the model makes 4 rows of a tile of 32 x 32 "
            "pixels");
  EXPECT_EQ(with("llava", "num_additional_image_tokens", 0),
            "processor_config.json: processor and model disagree: an image of 60 x 40 pixels brings 4 rows, but its "
            "text has 3 places; patch_size is 14, num_additional_image_tokens 0, vision_feature_select_strategy "
            "default, and the model makes 4 rows of a tile of 28 x 28 pixels");
  EXPECT_EQ(with("llava", "patch_size", nullptr), "accepted");  // an early file, with which the class cannot count
  EXPECT_EQ(with("internvl", "image_seq_length", 5),
            "processor_config.json: processor and model disagree: an image of 60 x 40 pixels brings 28 rows, but its "
            "text has 35 places; image_seq_length is 5, and the model makes 4 rows of a tile of 28 x 28 pixels");
  EXPECT_TRUE(with("gemma3", "image_seq_length", nullptr).find("image_seq_length is 256") != std::string::npos);
  EXPECT_TRUE(with("llava_onevision", "num_image_tokens", 9).find("num_image_tokens is 9") != std::string::npos);
}

/// IE-3.
TEST(ImageTexts, keys_that_change_texts_are_refused_by_name) {
  const TempFolder folder;
  const auto with = [&](const char* model, const char* file, const char* key, const json& value) {
    return refusal(changed(folder, model, file, [&](json& content) { content[key] = value; }));
  };
  const char* processor = "processor_config.json";
  EXPECT_EQ(with("smolvlm", processor, "image_tiles", 5),
            "processor_config.json: image_tiles = 5 is unknown here and may change the model; if it does not, remove "
            "it");
  EXPECT_EQ(with("llava_onevision", processor, "vision_aspect_ratio", "anyres_max_9"),
            "processor_config.json: vision_aspect_ratio = \"anyres_max_9\" differs from the model's anyres_max_2");
  EXPECT_EQ(with("llava", processor, "image_token", "<picture>"),
            "processor_config.json: image_token = \"<picture>\" differs from token 800 of config.json, <image>");
  EXPECT_EQ(with("internvl", "tokenizer_config.json", "context_image_token", "<img>").substr(0, 64),
            "tokenizer_config.json: context_image_token: <img> differs from t");
  EXPECT_EQ(with("internvl", "tokenizer_config.json", "end_image_token", nullptr),
            "tokenizer_config.json: end_image_token: is missing, also in extra_special_tokens");
  EXPECT_EQ(with("gemma3", "tokenizer_config.json", "boi_token", nullptr),
            "tokenizer_config.json: boi_token: is missing, also in extra_special_tokens");
  EXPECT_EQ(with("gemma3", "tokenizer_config.json", "eoi_token", "two words"),
            "tokenizer_config.json: eoi_token: two words is not encoded as a single token by the tokenizer");
  EXPECT_EQ(with("llava", "config.json", "image_token_index", 9999),
            "config.json: image token 9999 is not one of the tokenizer's tokens, 801");
}

TEST(ImageTexts, a_text_that_spells_the_image_token_is_refused) {
  EXPECT_EQ(error_of(references / "llava", "Is it <image>?"),
            "the template's text up to messages[1] has 2 places <image> for 1 images; a text that spells it is not a "
            "place");
}

/// LLaVA's template is one; its models stop at the tokenizer's end.
TEST(ImageTexts, templates_without_an_end_get_the_tokenizers) {
  const TempFolder folder;
  const fs::path llava =
      changed(folder, "llava", "tokenizer_config.json", [](json& keys) { keys["eos_token"] = "</s>"; });
  const DocumentEncoder encoder(options_of(llava));
  const Record record = record_of(json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "What?"}]},
          {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}])"));
  const auto documents = encode(encoder, record, {});
  ASSERT_TRUE(documents) << documents.error().message;
  EXPECT_EQ(encoder.tokenizer().decode(documents->front().tokens), "<s> USER: What? ASSISTANT: A cat. </s>");
  EXPECT_EQ(documents->front().learned.back(), 1);
}

/// A template that only reads texts gets a placeholder and a newline for each image.
TEST(ImageTexts, templates_without_parts_receive_placeholders) {
  const TempFolder folder;
  PrepareOptions options = options_of(references / "llava");
  options.chat_template =
      folder.write("t.jinja", "{% for m in messages %}{{ '[' + m['content'] + ']' }}{% endfor %}").string();
  const DocumentEncoder encoder(options);
  const Record record = record_of(json::parse(
      R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
          {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}])"));
  const auto documents = encode(DocumentEncoder(options), record, {{60, 40}});
  ASSERT_TRUE(documents) << documents.error().message;
  EXPECT_EQ(encoder.tokenizer().decode(documents->front().tokens),
            "<s> [<image><image><image><image> \nWhat?][A cat.]");
}

}  // namespace
}  // namespace maestro::image_texts
