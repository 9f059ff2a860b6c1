// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/decoder_config.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JobTable student_of(const std::string& lines) {
  return JobDocument::parse("[student]\n" + lines, "job.toml").root().table("student");
}
std::string section_error(const std::string& lines) {
  return job_error_of([&] { (void)read_section(student_of(lines), "student"); });
}
std::string decoder_error(const std::string& lines) {
  return job_error_of([&] { (void)read_decoder(student_of(lines)); });
}

TEST(SectionReader, a_speed_is_a_number_or_a_list_with_one_for_each_replica) {
  const SectionConfig unequal = read_section(student_of("replicas = 3\nspeed = [2, 1, 0.5]"), "student");
  EXPECT_EQ(unequal.speed, 2);
  EXPECT_THAT(unequal.replica_speeds, ElementsAre(1, 0.5, 0.25));
  EXPECT_EQ(unequal.replica_speed(2), 0.25);
  const SectionConfig equal = read_section(student_of("replicas = 2\nspeed = [0.3, 0.3]"), "student");
  EXPECT_EQ(equal.speed, 0.3) << "as the number alone";
  EXPECT_THAT(equal.replica_speeds, ElementsAre());
  EXPECT_EQ(read_section(student_of("speed = 0.3"), "student").speed, 0.3);
  EXPECT_EQ(section_error("replicas = 3\nspeed = [1, 0.5]"),
            "job.toml:3: student.speed: names 2 speeds for replicas = 3; name one per replica, or a number for all of "
            "them");
  EXPECT_THAT(section_error("speed = [1, 0.5]"),
              HasSubstr("job.toml:2: student.speed: names 2 speeds for replicas = 1"));
  EXPECT_THAT(section_error("replicas = 2\nspeed = [1, 0]"),
              HasSubstr("student.speed: element 2 must be at least 0.001"));
  EXPECT_THAT(section_error("replicas = 2\nspeed = []"), HasSubstr("names 0 speeds for replicas = 2"));
  EXPECT_THAT(section_error("speed = \"fast\""), HasSubstr("job.toml:2: student.speed: expected a number"));
}

TEST(SectionReader, ranks_may_share_experts) {
  const auto read = [](const std::string& lines) { return read_section(student_of(lines), "student"); };
  EXPECT_EQ(read("tensor = 2").expert, 1);
  EXPECT_EQ(read("tensor = 2\ncontext = 2\nexpert = 4\nexpert_tensor = 1").expert, 4);
  EXPECT_EQ(read("tensor = 2\nexpert_tensor = 2").expert, 1) << "the default, by name";
  EXPECT_EQ(section_error("tensor = 2\nexpert = 2\nexpert_tensor = 2"),
            "job.toml:4: student.expert_tensor: is not built for values other than 1 with expert = 2; leave it out");
  EXPECT_THAT(section_error("tensor = 2\nexpert_tensor = 1"), HasSubstr("values other than 2 with expert = 1"));
  EXPECT_EQ(section_error("expert = 2\nreplicas = [{context = 2}, {context = 4}]"),
            "job.toml:2: student.expert: expert = 2: replicas of several contexts cannot share experts alike; leave "
            "expert out, or set replicas = 2");
  EXPECT_THAT(section_error("expert = 0"), HasSubstr("student.expert: must be from 1 to 1024, got 0"));
}

TEST(SectionReader, replicas_may_differ_in_their_context) {
  const auto read = [](const std::string& lines) { return read_section(student_of(lines), "student"); };
  const SectionConfig mixed = read("tensor = 2\nreplicas = [{context = 4}, {count = 2, context = 1}]");
  EXPECT_EQ(mixed.replicas, 3);
  EXPECT_EQ(mixed.context, 4) << "of the widest";
  EXPECT_THAT(mixed.contexts, ElementsAre(4, 1, 1));
  EXPECT_EQ(mixed.devices_of_all(), 12);
  EXPECT_EQ(mixed.speed, 1);
  EXPECT_THAT(mixed.replica_speeds, ElementsAre(1, 0.25, 0.25)) << "a narrow replica has fewer devices";
  const SectionConfig alike = read("replicas = [{context = 2}, {context = 2}]");
  EXPECT_EQ(alike.replicas, 2);
  EXPECT_EQ(alike.context, 2);
  EXPECT_THAT(alike.contexts, ElementsAre()) << "as the two numbers";
  EXPECT_THAT(alike.replica_speeds, ElementsAre());
  const SectionConfig fast = read("replicas = [{context = 4}, {context = 1}]\nspeed = [0.5, 4]");
  EXPECT_EQ(fast.speed, 1) << "4 on a quarter of the devices";
  EXPECT_THAT(fast.replica_speeds, ElementsAre(0.5, 1));
  EXPECT_EQ(section_error("replicas = [{context = 4}, {context = 1}]\ncontext = 2"),
            "job.toml:3: student.context: replicas lists the context of each replica; leave context out, or set "
            "replicas = 2");
  EXPECT_EQ(section_error("replicas = []"),
            "job.toml:2: student.replicas: lists 0 replicas; expected from 1 to 16384, such as [{context = 2}, "
            "{count = 2, context = 1}]");
  EXPECT_EQ(section_error("replicas = [{context = 2}, {context = 1}]\ndevices = [\"cpu:0\", \"cpu:1\"]"),
            "job.toml:3: student.devices: names 2 devices for replicas whose contexts, times pipeline x tensor, add up "
            "to 3; name 3, or none to place them automatically");
  EXPECT_THAT(section_error("replicas = [{context = 0}]"), HasSubstr("context: must be from 1 to 1024, got 0"));
  EXPECT_THAT(section_error("replicas = [2, 1]"), HasSubstr("student.replicas: expected a list of tables"));
  EXPECT_THAT(section_error("replicas = [{context = 2}, {context = 1}]\nspeed = [1]"),
              HasSubstr("names 1 speed for replicas = 2"));
}

TEST(SectionReader, reads_every_key_of_a_section) {
  const auto student = student_of(R"(replicas = 2
micro_batch = 4
devices = ["cpu:0", "cpu:1"]
precision = "bf16"
weights = "./models/gpt2"
max_in_flight = 3
zero = true
lr = 0.5
min_lr = 0.25
warmup_steps = 11
schedule = "linear"
weight_decay = 0.0
beta1 = 0.8
beta2 = 0.9
epsilon = 1e-6
clip_norm = 0
)");
  const auto section = read_section(student, "student");
  EXPECT_EQ(section.name, "student");
  EXPECT_EQ(section.replicas, 2);
  EXPECT_EQ(section.micro_batch, 4);
  EXPECT_THAT(texts_of(section.devices), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_EQ(section.precision, DType::bf16);
  EXPECT_EQ(section.weights, "./models/gpt2");
  EXPECT_FALSE(section.random);
  EXPECT_EQ(section.max_in_flight, 3);
  EXPECT_TRUE(section.zero);
  EXPECT_EQ(section.optimizer.lr, 0.5);
  EXPECT_EQ(section.optimizer.min_lr, 0.25);
  EXPECT_EQ(section.optimizer.warmup_steps, 11);
  EXPECT_EQ(section.optimizer.schedule, LearningRateSchedule::linear);
  EXPECT_EQ(section.optimizer.weight_decay, 0.0);
  EXPECT_EQ(section.optimizer.beta1, 0.8);
  EXPECT_EQ(section.optimizer.beta2, 0.9);
  EXPECT_EQ(section.optimizer.epsilon, 1e-6);
  EXPECT_EQ(section.optimizer.clip_norm, 0.0);
  EXPECT_NO_THROW(student.finish());
}

TEST(SectionReader, absent_keys_keep_the_defaults_of_the_caller) {
  SectionConfig defaults;
  defaults.micro_batch = 3;
  defaults.precision = DType::bf16;
  defaults.optimizer.lr = 0.125;
  const auto section = read_section(student_of("replicas = 2\n"), "student", defaults);
  EXPECT_EQ(section.replicas, 2);
  EXPECT_EQ(section.micro_batch, 3);
  EXPECT_EQ(section.precision, DType::bf16);
  EXPECT_EQ(section.optimizer.lr, 0.125);
}

TEST(SectionReader, an_optimizer_key_of_a_forward_only_section_is_unknown) {
  const auto document = JobDocument::parse("[teacher]\nlr = 0.1\n", "job.toml");
  (void)read_section(document.root().table("teacher"), "teacher", {}, Training::none);
  EXPECT_THAT(job_error_of([&] { document.finish(); }), HasSubstr("job.toml:2: teacher.lr: unknown key"));
}

TEST(SectionReader, refuses_impossible_section_settings) {
  EXPECT_EQ(section_error("micro_batch = 0"), "job.toml:2: student.micro_batch: must be from 1 to 2147483648, got 0");
  EXPECT_EQ(section_error("precision = \"fp16\""),
            "job.toml:2: student.precision: \"fp16\" is not one of fp32, bf16; did you mean 'fp32'?");
  EXPECT_THAT(section_error("replicas = 0"), HasSubstr("student.replicas: must be from 1 to 16384"));
  EXPECT_THAT(section_error("max_in_flight = 65"), HasSubstr("must be from 1 to 64"));
  EXPECT_THAT(section_error("beta1 = 1.0"), HasSubstr("must be at least 0 and less than 1"));
  EXPECT_THAT(section_error("beta2 = -0.1"), HasSubstr("must be at least 0 and less than 1"));
  EXPECT_THAT(section_error("epsilon = 0"), HasSubstr("must be greater than 0"));
  EXPECT_THAT(section_error("warmup_steps = -1"), HasSubstr("must be from 0 to 1099511627776"));
  EXPECT_THAT(section_error("schedule = \"cosin\""), HasSubstr("did you mean 'cosine'?"));
  for (const std::string key : {"lr", "min_lr", "weight_decay", "clip_norm"}) {
    EXPECT_THAT(section_error(key + " = -1"), HasSubstr("student." + key + ": must be at least 0")) << key;
  }
}

TEST(SectionReader, the_end_of_the_schedule_lies_not_above_its_start) {
  EXPECT_THAT(section_error("lr = 0.1\nmin_lr = 0.2"), HasSubstr("job.toml:3: student.min_lr: "));
  EXPECT_EQ(section_error("lr = 0.1\nmin_lr = 0.1"), "(no error)");
}

TEST(SectionReader, devices_are_one_cpu_per_replica) {
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"cpu:0\"]"),
            "job.toml:3: student.devices: names 1 device for replicas = 2; name one per replica, or none to place them "
            "automatically");
  EXPECT_EQ(
      section_error("replicas = 2\ndevices = [\"cpu:0\", \"cpu:1\", \"cpu:2\"]"),
      "job.toml:3: student.devices: names 3 devices for replicas = 2; name one per replica, or none to place them "
      "automatically");
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"cpu:0\", \"cpu:1\"]"), "(no error)");
  EXPECT_EQ(section_error("replicas = 2\ndevices = []"), "(no error)");
  for (const std::string device : {"cpu:", "cpu:-1", "cpu:1x", "gpu:0", "cpu:99999999999", "cuda:", "cuda:x", ""}) {
    EXPECT_EQ(section_error("devices = [\"" + device + "\"]"),
              "job.toml:2: student.devices: \"" + device +
                  "\" is not a device; expected cpu:K, cuda:K or emulated:K, for example cpu:0, or a single emulated");
  }
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"emulated\"]"), "(no error)");
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"cuda:0\", \"cpu:1\"]"), "(no error)");
  EXPECT_EQ(section_error("devices = [\"cpu:1000\"]"), "(no error)");
  EXPECT_EQ(section_error("devices = [\"teacher\"]"), "(no error)") << "the devices of another section";
  EXPECT_NE(section_error("devices = [\"cpu:10000\"]"), "(no error)");
  EXPECT_EQ(
      section_error("replicas = 2\ndevices = [\"emulated\", \"cpu:0\"]"),
      "job.toml:3: student.devices: \"emulated\" is not a device; expected cpu:K, cuda:K or emulated:K, for example "
      "cpu:0, or a single emulated");
}

TEST(SectionReader, replicas_without_a_number_are_those_that_devices_or_processes_are_named_for) {
  SectionConfig two;
  two.replicas = 2;  // an app's default
  const auto replicas_of = [&](const std::string& keys) {
    return read_section(student_of(keys), "student", two).replicas;
  };
  EXPECT_EQ(replicas_of(""), 2);
  EXPECT_EQ(replicas_of("devices = []"), 2);
  EXPECT_EQ(replicas_of("devices = [\"emulated\"]"), 2);
  EXPECT_EQ(replicas_of("devices = [\"cpu:0\"]"), 1);
  EXPECT_EQ(replicas_of("devices = [\"cpu:0\", \"cpu:1\", \"cpu:2\"]"), 3);
  EXPECT_EQ(replicas_of("tensor = 2\ndevices = [\"cpu:0\", \"cpu:1\"]"), 1);
  EXPECT_EQ(replicas_of("processes = [0]"), 1);
  EXPECT_EQ(replicas_of("pipeline = 2\nprocesses = [0, 1]"), 1);
  EXPECT_THAT(section_error("tensor = 2\ndevices = [\"cpu:0\"]"), HasSubstr("names 1 device for replicas"));
}

TEST(SectionReader, emulated_devices_are_named_for_every_rank_or_for_none) {
  const std::string cut = "replicas = 2\ntensor = 2\n";
  EXPECT_EQ(section_error(cut + "context = 2\npipeline = 2\ndevices = [\"emulated\"]"), "(no error)");
  EXPECT_EQ(section_error(cut + R"(devices = ["emulated:0", "emulated:1", "emulated:1", "emulated:0"])"), "(no error)");
  EXPECT_EQ(section_error("devices = [\"emulated:3\"]"), "(no error)");
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"emulated:3\"]"),
            "job.toml:3: student.devices: names 1 device for replicas = 2; name one per replica, or a single "
            "\"emulated\" for a device per rank");
  EXPECT_THAT(section_error(cut + R"(devices = ["emulated:0", "emulated:1"])"),
              HasSubstr("= 4; name 4, or a single \"emulated\" for a device per rank"));
  EXPECT_EQ(section_error("replicas = 2\ndevices = [\"cpu:0\", \"emulated:1\"]"),
            "job.toml:3: student.devices: names emulated:1 with cpu:0; a section is on emulated devices only, or on "
            "others only");
}

TEST(SectionReader, devices_of_cut_replicas_are_as_many_as_replicas_stages_and_ranks) {
  const std::string cut = "tensor = 2\npipeline = 2\ndevices = [";
  EXPECT_EQ(section_error(cut + "\"cpu:0\", \"cpu:1\", \"cpu:2\", \"cpu:3\"]"), "(no error)");
  for (const std::string names :
       {"\"cpu:0\", \"cpu:1\", \"cpu:2\"]", "\"cpu:0\", \"cpu:1\", \"cpu:2\", \"cpu:3\", \"cpu:4\"]"}) {
    EXPECT_THAT(section_error(cut + names),
                HasSubstr("for replicas x pipeline x context x tensor = 4; name 4, or none"));
  }
}

TEST(SectionReader, a_bound_on_tokens_alone_leaves_the_number_of_samples_open) {
  const auto read = [](const char* lines) { return read_section(student_of(lines), "student"); };
  EXPECT_EQ(read("micro_batch_tokens = 512").micro_batch_tokens, 512);
  EXPECT_GE(read("micro_batch_tokens = 512").micro_batch, std::int64_t{1} << 31);
  EXPECT_EQ(read("micro_batch_tokens = 512\nmicro_batch = 4").micro_batch, 4);
  EXPECT_TRUE(read("").trained);
  EXPECT_FALSE(read("trained = false").trained);
}

TEST(DecoderReader, reads_every_key_of_a_decoder) {
  const auto student = student_of(R"(family = "llama"
layers = 2
width = 64
heads = 8
kv_heads = 2
ffn = 192
vocabulary = 512
positions = 256
tied = false
rope_theta = 5e5
norm_epsilon = 1e-6
init_std = 0.01
)");
  const auto decoder = read_decoder(student);
  EXPECT_EQ(decoder.family, DecoderFamily::llama);
  EXPECT_EQ(decoder.layers, 2);
  EXPECT_EQ(decoder.width, 64);
  EXPECT_EQ(decoder.heads, 8);
  EXPECT_EQ(decoder.kv_heads, 2);
  EXPECT_EQ(decoder.ffn, 192);
  EXPECT_EQ(decoder.vocabulary, 512);
  EXPECT_EQ(decoder.positions, 256);
  EXPECT_FALSE(decoder.tied);
  EXPECT_EQ(decoder.rope_theta, 5e5);
  EXPECT_EQ(decoder.norm_epsilon, 1e-6);
  EXPECT_EQ(decoder.init_std, 0.01);
  EXPECT_NO_THROW(student.finish());
}

TEST(DecoderReader, heads_divide_the_width) {
  EXPECT_EQ(decoder_error("width = 128\nheads = 5"),
            "job.toml:3: student.heads: heads = 5 does not divide width = 128; nearest that does: 4");
  EXPECT_EQ(decoder_error("width = 130"),
            "job.toml:2: student.width: heads = 4 does not divide width = 130; nearest that does: 5");
}

TEST(DecoderReader, key_value_heads_divide_the_heads) {
  EXPECT_EQ(decoder_error("family = \"llama\"\nheads = 8\nkv_heads = 3"),
            "job.toml:4: student.kv_heads: kv_heads = 3 does not divide heads = 8; nearest that does: 2");
}

TEST(DecoderReader, gpt2_has_no_grouped_queries) {
  EXPECT_THAT(decoder_error("kv_heads = 2"), HasSubstr("job.toml:2: student.kv_heads: family \"gpt2\""));
  EXPECT_EQ(decoder_error("kv_heads = 4"), "(no error)");
}

TEST(DecoderReader, a_qwen3_5_has_delta_rules_in_the_layers_without_attention) {
  const std::string qwen = "family = \"qwen3_5_text\"\nlayers = 5\n";
  const DecoderConfig config = read_decoder(student_of(qwen + "delta_key_heads = 2\ndelta_value_heads = 6\n"
                                                              "delta_key_size = 16\ndelta_value_size = 24\n"));
  EXPECT_EQ(config.delta, (DeltaShape{2, 6, 16, 24}));
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(config.mixer_of(layer).kind, layer == 3 ? MixerKind::attention : MixerKind::delta) << layer;
  }
  EXPECT_EQ(read_decoder(student_of(qwen + "attention_layers = [0]")).mixer_of(3).kind, MixerKind::delta);
  EXPECT_EQ(decoder_error(qwen + "delta_key_heads = 4\ndelta_value_heads = 6"),
            "job.toml:5: student.delta_value_heads: delta_value_heads = 6 is not a multiple of delta_key_heads = 4");
  EXPECT_EQ(decoder_error("family = \"llama\"\ndelta_key_heads = 4"),
            "job.toml:3: student.delta_key_heads: family \"llama\" lacks gated delta rules; leave delta_key_heads out "
            "or set family = \"qwen3_5_text\"");
}

TEST(DecoderReader, a_deepseek_has_latents_and_shared_experts_by_number) {
  const std::string deepseek = "family = \"deepseek_v3\"\nexperts = 8\nexpert_ffn = 16\nshared_ffn = 32\n";
  const DecoderConfig config =
      read_decoder(student_of(deepseek + "head_size = 24\nkey_latent = 40\nquery_latent = 20\nrope_size = 8\n"
                                         "value_size = 12\n"));
  EXPECT_EQ(config.latent, (LatentConfig{40, 20, 8, 12, false}));
  EXPECT_EQ(decoder_error(deepseek + "kv_heads = 2"),
            "job.toml:6: student.kv_heads: family \"deepseek_v3\" has keys for every head; leave kv_heads out");
  EXPECT_EQ(decoder_error("family = \"glm4_moe\"\nexperts = 8\nexpert_ffn = 16\nshared_ffn = 40"),
            "job.toml:5: student.shared_ffn: shared_ffn = 40 is not a multiple of expert_ffn = 16");
  EXPECT_EQ(decoder_error("family = \"deepseek_v2\"\nexperts = 8\nrouter = \"sigmoid\""),
            "job.toml:4: student.router: family \"deepseek_v2\" has no router \"sigmoid\"; set router = \"softmax\"");
  EXPECT_EQ(decoder_error("family = \"llama\"\nrope_size = 4"),
            "job.toml:3: student.rope_size: family \"llama\" lacks latent attention; leave rope_size out or set family "
            "= \"deepseek_v3\"");
}

TEST(DecoderReader, a_router_has_a_scale_and_groups_in_families_with_them) {
  const std::string glm = "family = \"glm4_moe\"\nexperts = 8\nexpert_ffn = 16\nshared_ffn = 32\n";
  const DecoderConfig config =
      read_decoder(student_of(glm + "router_scale = 2.5\nrouter_groups = 4\nrouter_top_groups = 2\n"));
  EXPECT_EQ(config.experts.router.scale, 2.5);
  EXPECT_EQ(config.experts.router.groups, 4);
  EXPECT_EQ(config.experts.router.top_groups, 2);
  EXPECT_EQ(read_decoder(student_of("family = \"lfm2_moe\"\nexperts = 8\nrouter_scale = 1.5")).experts.router.scale,
            1.5);
  EXPECT_EQ(decoder_error(glm + "router_groups = 3"),
            "job.toml:6: student.router_groups: router_groups = 3 does not divide experts = 8; nearest that does: 2");
  EXPECT_EQ(decoder_error(glm + "router_groups = 4\nrouter_top_groups = 5"),
            "job.toml:7: student.router_top_groups: router_top_groups = 5 is above router_groups = 4");
  EXPECT_EQ(
      decoder_error(glm + "router_groups = 4\nexperts_per_token = 3"),
      "job.toml:7: student.experts_per_token: experts_per_token = 3 is above the 2 experts of router_top_groups = "
      "1 groups");
  EXPECT_EQ(decoder_error("family = \"mixtral\"\nexperts = 8\nrouter_scale = 2"),
            "job.toml:4: student.router_scale: family \"mixtral\" does not scale its experts; leave router_scale out");
  EXPECT_EQ(decoder_error("family = \"qwen3_moe\"\nexperts = 8\nrouter_groups = 2"),
            "job.toml:4: student.router_groups: family \"qwen3_moe\" has no groups of experts; leave router_groups out "
            "or set family = \"glm4_moe\"");
  EXPECT_EQ(decoder_error("family = \"llama\"\nrouter_scale = 2"),
            "job.toml:3: student.router_scale: is without effect: the decoder lacks experts");
}

TEST(DecoderReader, a_gpt_oss_has_experts_sinks_and_windows_in_every_second_layer) {
  const std::string shape = "family = \"gpt_oss\"\nlayers = 3\nexperts = 4\nwindow = 8\n";
  const DecoderConfig read = read_decoder(student_of(shape));
  const DecoderConfig config = with_family(read, read.family);
  EXPECT_TRUE(config.attention_sinks && config.experts.biases && config.out_bias);
  EXPECT_EQ(config.experts.router.kind, RouterKind::chosen);
  EXPECT_EQ(config.experts.gate_limit, 7);
  for (std::int64_t layer = 0; layer < 3; ++layer) EXPECT_EQ(config.mixer_of(layer).windowed, layer != 1) << layer;
  EXPECT_EQ(decoder_error("family = \"gpt_oss\"\nexperts = 4\nrouter = \"sigmoid\""),
            "job.toml:4: student.router: family \"gpt_oss\" has no router \"sigmoid\"; set router = \"chosen\"");
}

TEST(DecoderReader, an_lfm2_has_convolutions_in_the_layers_without_attention) {
  const auto kinds = [](const DecoderConfig& config) {
    std::string text;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      text += config.mixer_of(i).kind == MixerKind::convolution ? 'c' : 'a';
    }
    return text;
  };
  const std::string lfm2 = "family = \"lfm2\"\nlayers = 5\n";
  EXPECT_EQ(kinds(read_decoder(student_of(lfm2))), "ccacc");
  EXPECT_EQ(kinds(read_decoder(student_of(lfm2 + "attention_layers = [0, 4]"))), "accca");
  EXPECT_EQ(kinds(read_decoder(student_of(lfm2 + "attention_layers = []"))), "ccccc");
  EXPECT_EQ(kinds(read_decoder(student_of(lfm2 + "attention_layers = [0, 1, 2, 3, 4]"))), "aaaaa");
  EXPECT_EQ(decoder_error(lfm2 + "attention_layers = [5]"),
            "job.toml:4: student.attention_layers: there is no layer 5; layers = 5 are counted from 0");
  EXPECT_EQ(decoder_error("family = \"llama\"\nattention_layers = [0]"),
            "job.toml:3: student.attention_layers: family \"llama\" has attention in every layer; leave "
            "attention_layers out or set family = \"lfm2\"");
  DecoderConfig stored = with_family({}, DecoderFamily::lfm2);
  stored.layers = 2;
  stored.mixers = {{.kind = MixerKind::convolution}, {}};
  EXPECT_EQ(kinds(read_decoder(student_of(""), stored)), "ca");
  EXPECT_THAT(job_error_of([&] { (void)read_decoder(student_of("layers = 3"), stored); }),
              HasSubstr("student.layers: layers = 3 differs from the 2 layers of the weights; leave it out"));
}

TEST(DecoderReader, rotary_positions_need_an_even_head_size) {
  EXPECT_EQ(decoder_error("family = \"llama\"\nwidth = 12\nheads = 4"),
            "job.toml:4: student.heads: rotary positions need an even head size, but width / heads = 3");
  EXPECT_EQ(decoder_error("family = \"gpt2\"\nwidth = 12\nheads = 4"), "(no error)");
}

TEST(DecoderReader, refuses_impossible_shapes) {
  for (const std::string key : {"layers", "width", "heads", "positions"}) {
    EXPECT_THAT(decoder_error(key + " = 0"), HasSubstr("student." + key + ": must be from 1 to")) << key;
  }
  for (const std::string key : {"kv_heads", "ffn"}) {
    EXPECT_THAT(decoder_error(key + " = -1"), HasSubstr("student." + key + ": must be from 0 to")) << key;
  }
  for (const std::string key : {"rope_theta", "norm_epsilon", "init_std"}) {
    EXPECT_THAT(decoder_error(key + " = 0"), HasSubstr("student." + key + ": must be greater than 0")) << key;
  }
  EXPECT_THAT(decoder_error("vocabulary = 1"), HasSubstr("must be from 2 to"));
  EXPECT_THAT(decoder_error("family = \"lama\""), HasSubstr("did you mean 'llama'?"));
}

TEST(SectionReader, adapters_have_a_rank_a_scale_and_products) {
  const auto whole = read_section(student_of("lora = {rank = 16, alpha = 24, dropout = 0.0}\n"), "student");
  EXPECT_EQ(whole.lora, (LoraConfig{16, 24, true, true, true}));
  EXPECT_EQ(whole.lora.scale(), 1.5);
  const auto some = read_section(student_of("lora = {rank = 2, on = [\"ffn\", \"qkv\"]}\n"), "student");
  EXPECT_EQ(some.lora, (LoraConfig{2, 2, true, false, true}));
  EXPECT_FALSE(read_section(student_of(""), "student").lora.given());
  EXPECT_THAT(section_error("lora = 16"), HasSubstr("student.lora: expected a table"));
  EXPECT_THAT(section_error("lora = {alpha = 16}"), HasSubstr("student.lora.rank: is not given"));
  EXPECT_THAT(section_error("lora = {rank = 0}"), HasSubstr("rank: must be from 1 to 4096"));
  EXPECT_THAT(section_error("lora = {rank = 2, alpha = 0}"), HasSubstr("alpha: must be greater than 0"));
  EXPECT_THAT(section_error("lora = {rank = 2, on = []}"), HasSubstr("student.lora.on: is empty"));
  EXPECT_THAT(section_error("lora = {rank = 2, on = [\"out\", \"out\"]}"), HasSubstr("\"out\" is named twice"));
  EXPECT_THAT(section_error("lora = {rank = 2, on = [\"fnn\"]}"),
              HasSubstr("\"fnn\" is not one of qkv, out, ffn; did you mean 'ffn'?"));
  EXPECT_THAT(section_error("lora = {rank = 2, dropout = 0.1}"), HasSubstr("without dropout; set 0 or leave it out"));
}

TEST(SectionReader, a_misspelt_key_of_adapters_is_answered_with_the_nearest) {
  const auto document = JobDocument::parse("[student]\nlora = {rank = 2, alpa = 4}\n", "job.toml");
  (void)read_section(document.root().table("student"), "student");
  EXPECT_THAT(job_error_of([&] { document.finish(); }),
              HasSubstr("student.lora.alpa: unknown key; did you mean 'alpha'?"));
}

TEST(SectionReader, replicas_that_move_have_two_bounds) {
  const auto section = read_section(student_of("replicas = {least = 2, most = 6}\n"), "student", {});
  EXPECT_EQ(section.replicas, 6);
  EXPECT_EQ(section.least, 2);
  EXPECT_EQ(section.placed(), 2);
  EXPECT_EQ(read_section(student_of("replicas = 3\n"), "student", {}).placed(), 3);
  EXPECT_EQ(read_section(student_of("replicas = {most = 3}\n"), "student", {}).least, 1);
  EXPECT_THAT(section_error("replicas = {least = 3, most = 2}"), HasSubstr("most: must be at least least = 3"));
  EXPECT_THAT(section_error("replicas = {least = 0}"), HasSubstr("least: must be from 1 to 16384"));
  EXPECT_THAT(section_error("replicas = {least = 2, most = 6}\ndevices = [\"cpu:0\"]"),
              HasSubstr("names 1 device for replicas.least = 2"));
}

}  // namespace
}  // namespace maestro
