// SPDX-License-Identifier: Apache-2.0
#include "sections/registry.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/job/job_document.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/foreign_tokens.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

constexpr const char* job = R"(
[teacher]
family = "llama"
layers = 1
width = 32
heads = 4
vocabulary = 40
precision = "bf16"
[student]
layers = 1
width = 16
heads = 2
vocabulary = 37
temperature = 2.0
divergence = "js"
)";

SectionTable section(const JobDocument& document, const std::string& name) {
  return {name, document.root().table(name), document.root(), {16, 37, "bytes"}};
}

std::string build_error(const std::string& text, const std::string& type, const std::string& name) {
  try {
    const JobDocument document = JobDocument::parse(text, "job.toml");
    (void)builtin_sections().build(type, section(document, name));
    document.finish();
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SectionRegistry, builds_what_a_job_describes) {
  Bench bench;
  const SectionRegistry registry = builtin_sections();
  const JobDocument document = JobDocument::parse(job, "job.toml");
  const auto teacher = registry.build("decoder_trunk", section(document, "teacher"));
  const auto student = registry.build("distilled_decoder", section(document, "student"));
  document.finish();
  const auto trunk = teacher(bench.context("teacher", false, DType::bf16));
  const auto distilled = student(bench.context("student", true));
  EXPECT_EQ(trunk->ports().outputs[0].name, "hidden");
  EXPECT_EQ(trunk->ports().outputs[0].columns, 32);
  EXPECT_EQ(distilled->ports().inputs[2].dtype, DType::bf16);
  EXPECT_EQ(distilled->ports().inputs[2].columns, 32);
  EXPECT_EQ(distilled->notes().size(), 1u);
}

TEST(SectionRegistry, lists_what_is_built_in) {
  std::vector<std::string> types;
  for (const auto& entry : builtin_sections().list()) {
    types.push_back(entry.type);
    EXPECT_FALSE(entry.description.empty()) << entry.type;
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"audio_encoder", "audio_projector", "decoder_lm", "decoder_trunk",
                                      "distilled_decoder", "generator", "language_model_head", "ngram_memory",
                                      "projector", "recorded_teacher", "vision_encoder", "vision_language_decoder"}));
}

TEST(SectionRegistry, an_unknown_type_is_refused_with_the_nearest_and_all) {
  EXPECT_EQ(build_error(job, "decoder_trnk", "teacher"),
            "teacher: section type 'decoder_trnk' is unknown; did you mean 'decoder_trunk'? known types: "
            "audio_encoder, audio_projector, decoder_lm, decoder_trunk, distilled_decoder, generator, "
            "language_model_head, ngram_memory, projector, recorded_teacher, "
            "vision_encoder, vision_language_decoder");
}

TEST(SectionRegistry, a_type_cannot_be_registered_twice) {
  SectionRegistry registry = builtin_sections();
  EXPECT_THROW(registry.add("decoder_lm", "again", {}), JobError);
}

TEST(SectionRegistry, a_student_without_its_teacher_is_refused) {
  const std::string text = "[student]\nteacher = \"professor\"\n";
  EXPECT_EQ(build_error(text, "distilled_decoder", "student").find("job.toml:2: student.teacher: there is no section "),
            0u)
      << build_error(text, "distilled_decoder", "student");
}

TEST(SectionRegistry, teachers_are_refused_by_name) {
  const auto error = [](const std::string& student) {
    const std::string tables = "[math]\nvocabulary = 37\n[code]\nvocabulary = 37\n[student]\nvocabulary = 37\n";
    const std::string records = "[records]\ntype = \"recorded_teacher\"\n";
    const bool recorded = student.find("records") != std::string::npos;
    return build_error(tables + student + "\n" + (recorded ? records : ""), "distilled_decoder", "student");
  };
  EXPECT_EQ(error("teacher = [\"math\", \"code\"]\nteacher_weights = [2, 1]"), "no error");
  EXPECT_EQ(error("teacher = [\"math\", \"coda\"]"),
            "job.toml:7: student.teacher: there is no section [coda] to learn from; did you mean 'code'?");
  EXPECT_EQ(error("teacher = [\"math\", \"math\"]"), "job.toml:7: student.teacher: names \"math\" twice");
  EXPECT_EQ(error("teacher = []"), "job.toml:7: student.teacher: names no section to learn from; name one or several");
  EXPECT_EQ(error("teacher_weights = [1]\nteacher = [\"math\", \"code\"]"),
            "job.toml:7: student.teacher_weights: has 1 weight for 2 teachers; give each teacher one, or leave it out");
  EXPECT_EQ(error("teacher_weights = [1, 0]\nteacher = [\"math\", \"code\"]"),
            "job.toml:7: student.teacher_weights: element 2 must be greater than 0, got 0");
  EXPECT_EQ(error("teacher_weights = [1, \"two\"]\nteacher = [\"math\", \"code\"]"),
            "job.toml:7: student.teacher_weights: expected a list of numbers, but element 2 is a string \"two\"");
  EXPECT_EQ(error("boundary = \"logits\"\nteacher = [\"math\", \"code\"]"),
            "job.toml:7: student.boundary: stands in the tables of the teachers if there are several");
  EXPECT_EQ(error("teacher = [\"math\", \"records\"]"),
            "job.toml:8: records.path: is not given; name the folder that `maestro teach` wrote");
}

TEST(SectionRegistry, misspelt_and_wrong_settings_are_refused_with_their_line) {
  const auto with = [](const std::string& line) { return std::string(job) + line + "\n"; };
  EXPECT_NE(build_error(with("tempratur = 1.0"), "distilled_decoder", "student").find("temperature"),
            std::string::npos);
  for (const char* line : {"alpha = 1.5", "beta = -0.1", "boundary = \"logit\"", "top_k = 0"}) {
    const std::string error = build_error(with(line), "distilled_decoder", "student");
    EXPECT_EQ(error.find("job.toml:16: student."), 0u) << error;
  }
}

constexpr const char* vision_job = R"(
[eye]
layers = 1
width = 32
heads = 4
patch = 4
positions = "2d"
precision = "bf16"
[projector]
vision = "eye"
[decoder]
layers = 1
width = 16
heads = 2
vocabulary = 37
)";

SectionTable vision_section(const JobDocument& document, const std::string& name) {
  SectionTable table = section(document, name);
  table.data.patch_columns = 3 * 4 * 4;
  return table;
}

TEST(SectionRegistry, vision_sections_take_widths_and_precisions_from_each_other) {
  Bench bench;
  const SectionRegistry registry = builtin_sections();
  const JobDocument document = JobDocument::parse(vision_job, "job.toml");
  const auto eye = registry.build("vision_encoder", vision_section(document, "eye"));
  const auto projector = registry.build("projector", vision_section(document, "projector"));
  const auto decoder = registry.build("vision_language_decoder", vision_section(document, "decoder"));
  const Port features = eye(bench.context("eye", true, DType::bf16))->ports().outputs[0];
  const Ports between = projector(bench.context("projector", true))->ports();
  const Port visual = decoder(bench.context("decoder", true, DType::bf16))->ports().inputs[2];
  (void)document.root().table("eye").text("precision", "");
  document.finish();
  for (const auto& [out, in] : {std::pair{features, between.inputs[0]}, std::pair{between.outputs[0], visual}}) {
    EXPECT_EQ(out.name, in.name);
    EXPECT_EQ(out.dtype, in.dtype) << out.name;
    EXPECT_EQ(out.columns, in.columns) << out.name;
    EXPECT_EQ(out.axis, out.name == "visual" ? Axis::visual : Axis::patches);
    EXPECT_EQ(in.axis, out.axis);
    EXPECT_TRUE(out.differentiable && in.differentiable);
  }
  EXPECT_FALSE(between.inputs[0].optional);
  EXPECT_TRUE(visual.optional);
}

std::string vision_error(const std::string& type, const std::string& name, const std::string& change) {
  try {
    Bench bench;
    const JobDocument document = JobDocument::parse(vision_job, "job.toml", {change});
    SectionContext context = bench.context(name, true);
    context.meta = true;
    (void)builtin_sections().build(type, vision_section(document, name))(context);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SectionRegistry, vision_settings_that_fit_neither_themselves_nor_the_data_are_refused) {
  EXPECT_EQ(vision_error("vision_encoder", "eye", "eye.layers=1"), "no error");
  EXPECT_NE(vision_error("vision_encoder", "eye", "eye.heads=3").find("heads = 3 does not divide width = 32"),
            std::string::npos);
  EXPECT_EQ(vision_error("vision_encoder", "eye", "eye.patch=8"),
            "eye: patch = 8 does not fit the data's patches of 4 x 4 pixels; set patch = 4 here, or change data.patch");
  EXPECT_NE(vision_error("vision_encoder", "eye", "eye.positions=3d").find("eye.positions"), std::string::npos);
  EXPECT_NE(vision_error("projector", "projector", "projector.vision=iris").find("there is no section [iris]"),
            std::string::npos);
}

TEST(SectionRegistry, weights_give_the_shape_that_the_job_leaves_out) {
  Bench bench;
  const std::string folder = reference_folder("llama_untied").string();
  const JobDocument document = JobDocument::parse("[lm]\nweights = \"" + folder + "\"\n", "job.toml");
  const auto factory = builtin_sections().build("decoder_lm", section(document, "lm"));
  document.finish();
  const auto lm = factory(bench.context("lm", false));
  EXPECT_NE(lm->parameters().find("model.layers.1.self_attn.qkv_proj.weight"), nullptr);
  EXPECT_EQ(lm->parameters().find("lm_head.weight")->shape(), (Shape{61, 24}));
}

/// Returns the error for a language model with weights in `folder` and a corpus of that kind with 37 tokens.
std::string tokens_error(const std::filesystem::path& folder, const std::string& more, const std::string& corpus) {
  try {
    const JobDocument document = JobDocument::parse("[lm]\nweights = \"" + folder.string() + "\"\n" + more, "job.toml");
    const SectionTable table{"lm", document.root().table("lm"), document.root(), {16, 37, corpus}};
    for (const char* type : {"decoder_lm", "decoder_trunk"}) (void)builtin_sections().build(type, table);
    document.finish();
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SectionRegistry, weights_of_another_tokenizer_than_the_corpus_are_refused_unless_they_are_meant) {
  const std::vector<std::vector<std::string>> tokenizers = {
      {"tokenizer.json"}, {"tokenizer.model"}, {"vocab.json", "merges.txt"}};
  for (const auto& files : tokenizers) {
    const TemporaryFolder folder;
    std::filesystem::copy_file(reference_folder("llama_untied") / "config.json", folder.path() / "config.json");
    EXPECT_EQ(tokens_error(folder.path(), "", "bytes"), "no error");
    for (const std::string& file : files) std::ofstream(folder.path() / file) << "{}";
    const std::string path = (folder.path() / files[0]).string();
    EXPECT_EQ(tokens_error(folder.path(), "", "bytes"),
              "job.toml:2: lm.weights: " + path +
                  " is the tokenizer of these weights, but data.tokenizer = \"bytes\"; " +
                  "leave data.tokenizer out to use it, or set foreign_tokens = true in [lm] if you mean it");
    EXPECT_EQ(tokens_error(folder.path(), "foreign_tokens = true\n", "bytes"), "no error");
    EXPECT_EQ(tokens_error(folder.path(), "", "synthetic"), "no error");
  }
}

TEST(SectionRegistry, weights_of_many_more_rows_than_the_corpus_has_tokens_are_refused_unless_they_are_meant) {
  const TemporaryFolder folder;
  const auto of_rows = [&](std::int64_t rows) {
    DecoderConfig config;
    config.vocabulary = rows;
    std::ofstream(folder.path() / "config.json") << hf_config_text(config);
  };
  of_rows(37 + most_rows_beyond_tokens);
  EXPECT_EQ(tokens_error(folder.path(), "", "bytes"), "no error");
  of_rows(38 + most_rows_beyond_tokens);
  EXPECT_NE(tokens_error(folder.path(), "", "bytes")
                .find(" has 1062 rows of tokens, but data.tokenizer = \"bytes\" has 37; use weights of these tokens"),
            std::string::npos);
  EXPECT_EQ(tokens_error(folder.path(), "foreign_tokens = true\n", "bytes"), "no error");
}

TEST(SectionRegistry, a_decoder_from_random_values_has_the_tokens_of_the_corpus_unless_the_job_states_a_vocabulary) {
  Bench bench;
  const JobDocument document =
      JobDocument::parse("[lm]\nfamily = \"llama\"\n[stated]\nfamily = \"llama\"\nvocabulary = 500\n", "job.toml");
  const auto rows = [&](const std::string& name, std::int64_t tokens) {
    const SectionTable table{name, document.root().table(name), document.root(), {16, tokens, "tokens"}};
    const auto lm = builtin_sections().build("decoder_lm", table)(bench.context(name, false));
    return lm->parameters().find("model.embed_tokens.weight")->shape().rows();
  };
  EXPECT_EQ(rows("lm", 300), 300);
  EXPECT_EQ(rows("lm", 37), 256) << "never below the default";
  EXPECT_EQ(rows("lm", 0), 256) << "an unknown corpus";
  EXPECT_EQ(rows("stated", 300), 500);
}

TEST(SectionRegistry, weights_that_are_no_folder_are_refused_with_what_to_give) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "model.safetensors") << "x";
  EXPECT_NE(
      tokens_error("gpt2", "", "bytes").find("job.toml:2: lm.weights: gpt2: no such folder; weights are a folder"),
      std::string::npos);
  EXPECT_NE(tokens_error(folder.path() / "model.safetensors", "", "bytes")
                .find("is a file; name the folder that holds it and config.json: \"" + folder.path().string() + "\""),
            std::string::npos);
  EXPECT_EQ(tokens_error("random", "", "bytes"), "no error");
}

}  // namespace
}  // namespace maestro::testing
