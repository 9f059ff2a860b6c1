// SPDX-License-Identifier: Apache-2.0
// Exported config.json texts, and tokenizers of models.
#include "runtime/model/hf_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/model_files.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

DecoderConfig tiny(DecoderFamily family) {
  DecoderConfig config;
  config.family = family;
  config.vocabulary = 300;
  return config;
}

class HfExport : public testing::Test {
 protected:
  [[nodiscard]] json read(const fs::path& name) const { return json::parse(contents_of(folder_.path() / name)); }
  void save(const fs::path& relative, const std::vector<std::string>& tensors) const {
    static float value = 1;
    std::vector<NamedTensor> named;
    for (const std::string& name : tensors) named.push_back({name, Tensor(&value, DType::f32, {std::int64_t{1}})});
    ASSERT_TRUE(write_weights(folder_.path() / relative / "model.safetensors", named, WeightDtype::f32).ok());
  }

  TempFolder folder_;
};

TEST_F(HfExport, the_original_config_stays_but_for_architectures) {
  const std::string own = hf_config_text(tiny(DecoderFamily::llama));
  const std::string original =
      R"({"z": 0.1, "model_type": "llama", "bos_token_id": 7, "architectures": ["LlamaModel"], "a": [1]})";
  EXPECT_EQ(kept_config(original, own, "x").value_or_throw(),
            "{\n  \"z\": 0.1,\n  \"model_type\": \"llama\",\n  \"bos_token_id\": 7,\n  \"architectures\": [\n    "
            "\"LlamaForCausalLM\"\n  ],\n  \"a\": [\n    1\n  ]\n}\n");
  EXPECT_EQ(kept_config(R"({"model_type": "llava"})", own, "x").value_or_throw(), own) << "a part of that model";
  EXPECT_THAT(kept_config("[]", own, "there").error().message, HasSubstr("there"));
}

TEST_F(HfExport, a_dtype_replaces_the_key_that_there_is) {
  EXPECT_EQ(config_with_dtype(R"({"dtype": "bfloat16"})", WeightDtype::f16, "x").value_or_throw(),
            "{\n  \"dtype\": \"float16\"\n}\n");
  EXPECT_EQ(config_with_dtype("{}", WeightDtype::f16, "x").value_or_throw(), "{}\n");
}

TEST_F(HfExport, ids_of_tokens_stand_in_both_configs_and_unknown_ids_are_null_where_defaults_would_be_wrong) {
  const std::string own = hf_config_text(tiny(DecoderFamily::gpt2));
  const std::string config = config_with_tokens(own, {std::nullopt, 256, 300}, "x").value_or_throw();
  const json object = json::parse(config);
  EXPECT_EQ(object.at("eos_token_id"), 256);
  EXPECT_TRUE(object.at("bos_token_id").is_null());
  EXPECT_TRUE(object.at("pad_token_id").is_null()) << "300 is beyond the vocabulary";
  EXPECT_EQ(json::parse(generation_config_text(config, "x").value_or_throw()), json({{"eos_token_id", 256}}));
}

TEST_F(HfExport, the_tokenizer_of_bytes_has_an_end_where_the_vocabulary_holds_it) {
  ASSERT_TRUE(write_tokenizer("bytes", 256, folder_.path()).ok());
  EXPECT_FALSE(read_special_tokens(folder_.path()).value_or_throw().eos);
  ASSERT_TRUE(write_tokenizer("bytes", 257, folder_.path()).ok());
  const SpecialTokens tokens = read_special_tokens(folder_.path()).value_or_throw();
  EXPECT_EQ(tokens.eos, 256);
  EXPECT_FALSE(tokens.bos);
  EXPECT_TRUE(is_byte_tokenizer(folder_.path() / "tokenizer.json"));
  EXPECT_EQ(open_tokenizer(folder_.path()).value_or_throw()->name(), "bytes");
  const auto read = read_tokenizer_json(folder_.path() / "tokenizer.json").value_or_throw();
  const std::string text("a\xC3\xA4\n\0z", 6);
  EXPECT_EQ(read->encode(text), ByteTokenizer().encode(text)) << "to other programs the ids are the bytes";
  EXPECT_THAT(read->encode("<|end|>"), ElementsAre(256));
}

TEST_F(HfExport, a_corpus_tokenizer_comes_with_the_files_beside_it) {
  folder_.write("model/tokenizer.json", R"({"model": {"vocab": {"a": 0, "</s>": 5}}, "added_tokens": null})");
  folder_.write("model/special_tokens_map.json", R"({"eos_token": {"content": "</s>"}, "bos_token": "absent"})");
  folder_.write("model/generation_config.json", "{}");
  for (const char* named : {"model", "model/tokenizer.json"}) {
    const fs::path to = folder_.path() / "to";
    fs::create_directories(to);
    ASSERT_TRUE(write_tokenizer((folder_.path() / named).string(), 8, to).ok());
    EXPECT_THAT(model_files(to), ElementsAre("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"));
    fs::remove(to / "tokenizer_config.json");
    EXPECT_EQ(read_special_tokens(to).value_or_throw().eos, 5);
    EXPECT_FALSE(read_special_tokens(to).value_or_throw().bos);
    fs::remove_all(to);
  }
  fs::rename(folder_.path() / "model/tokenizer.json", folder_.path() / "model/own.json");
  ASSERT_TRUE(write_tokenizer((folder_.path() / "model/own.json").string(), 8, folder_.path()).ok());
  EXPECT_EQ(read("tokenizer.json").at("model").at("vocab").at("a"), 0);
  EXPECT_EQ(read("tokenizer_config.json").at("tokenizer_class"), "PreTrainedTokenizerFast");
}

TEST_F(HfExport, a_copied_generation_config_is_one_that_transformers_saves) {
  folder_.write("model/generation_config.json", R"({"eos_token_id": 4, "do_sample": false, "temperature": 0.0})");
  folder_.write("to/x", "");
  ASSERT_TRUE(
      copy_model_files(folder_.path() / "model", model_files(folder_.path() / "model"), folder_.path() / "to").ok());
  EXPECT_EQ(read("to/generation_config.json"), json({{"eos_token_id", 4}, {"do_sample", false}}));
}

TEST_F(HfExport, a_copy_is_no_more_readable_than_its_source) {
  const mode_t mask = umask(022);
  folder_.write("to/x", "");
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "generation_config.json"}) {
    for (const mode_t mode : {0600U, 0640U, 0444U, 0400U, 0666U}) {
      const fs::path source = folder_.write(std::string("model/") + name, "{}");
      ASSERT_EQ(chmod(source.c_str(), mode), 0);
      ASSERT_TRUE(copy_model_files(folder_.path() / "model", {name}, folder_.path() / "to").ok());
      const auto copied = static_cast<mode_t>(fs::status(folder_.path() / "to" / name).permissions());
      EXPECT_EQ(copied, mode & 0644U) << name;
      fs::remove(source);
    }
  }
  umask(mask);
}

TEST_F(HfExport, links_out_of_the_folder_and_files_of_another_kind_are_not_copied) {
  const fs::path model = folder_.path() / "model", to = folder_.path() / "to";
  folder_.write("to/x", "");
  const auto copied = [&](const char* name) {
    const Status status = copy_model_files(model, {name}, to);
    EXPECT_EQ(fs::exists(to / name), status.ok());
    fs::remove(to / name);
    return status.ok() ? "copied" : status.error().message;
  };
  const fs::path secret = folder_.write("home/id_rsa", "{}");
  folder_.write("model/real/template", "{{ messages }}");
  fs::create_symlink("real/template", model / "chat_template.jinja");
  EXPECT_EQ(copied("chat_template.jinja"), "copied") << "the link stays inside";
  fs::remove(model / "chat_template.jinja");
  for (const fs::path& target : {secret, fs::path("../home/id_rsa")}) {
    fs::create_symlink(target, model / "chat_template.jinja");
    EXPECT_EQ(copied("chat_template.jinja"), (model / "chat_template.jinja").string() +
                                                 " is a link out of its folder, to " + fs::canonical(secret).string() +
                                                 "; put the file itself there");
    fs::remove(model / "chat_template.jinja");
  }
  folder_.write("model/chat_template.jinja", std::string_view("a\0b", 3));
  EXPECT_THAT(copied("chat_template.jinja"), HasSubstr("it is not UTF-8 text"));
  folder_.write("model/chat_template.jinja", "\xff");
  EXPECT_THAT(copied("chat_template.jinja"), HasSubstr("it is not UTF-8 text"));
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "vocab.json"}) {
    folder_.write(std::string("model/") + name, "-----BEGIN KEY-----");
    EXPECT_THAT(copied(name), HasSubstr(std::string(name) + " is not valid JSON"));
  }
}

TEST_F(HfExport, a_folder_is_loaded_by_the_class_that_takes_all_of_its_tensors) {
  const auto expression = [&](const char* name) { return load_expression(folder_.path() / name).value_or_throw(); };
  DecoderConfig untied = tiny(DecoderFamily::llama);
  untied.tied = false;
  const std::string llama = hf_config_text(untied);
  folder_.write("whole/config.json", llama);
  save("whole", {"model.embed_tokens.weight", "lm_head.weight"});
  EXPECT_EQ(expression("whole"),
            "AutoModelForCausalLM.from_pretrained(\"" + (folder_.path() / "whole").string() + "\")");
  folder_.write("trunk/config.json", llama);
  save("trunk", {"model.embed_tokens.weight"});
  EXPECT_THAT(expression("trunk"), HasSubstr("AutoModel.from_pretrained("));
  folder_.write("head/config.json", llama);
  save("head", {"lm_head.weight"});
  EXPECT_THAT(expression("head"), HasSubstr("safetensors.torch.load_file("));
  folder_.write("vision/config.json", R"({"model_type": "siglip_vision_model"})");
  save("vision", {"vision_model.post_layernorm.weight"});
  EXPECT_THAT(expression("vision"), HasSubstr("SiglipVisionModel.from_pretrained("));
}

}  // namespace
}  // namespace maestro
