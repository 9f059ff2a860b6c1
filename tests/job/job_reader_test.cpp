// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;

JobTable root_of(const std::string& text) {
  return JobDocument::parse(text, "job.toml").root();
}
std::string train_error(const std::string& line) {
  return job_error_of([&] { (void)read_train(root_of("[train]\n" + line).table("train")); });
}
std::string data_error(const std::string& lines) {
  return job_error_of([&] { (void)read_data(root_of("[data]\n" + lines).table("data")); });
}
std::string transport_error(const std::string& line) {
  return job_error_of([&] { (void)read_transport(root_of("[transport]\n" + line).table("transport")); });
}

std::string schedule_error(const std::string& line) {
  return job_error_of([&] { (void)read_schedule(root_of("[schedule]\n" + line).table("schedule")); });
}

TEST(JobReader, reads_every_key_of_train) {
  const auto root = root_of(R"([train]
steps = 7
seed = 3
global_batch = 32
deterministic = false
cuda_graphs = "always"
checkpoint_every = 5
keep_checkpoints = 4
validate_every = 6
validation_samples = 0
ahead = 3
peer_timeout_s = 1.5
clip = "global"
out = "runs/x"
)");
  const auto train = read_train(root.table("train"));
  EXPECT_EQ(train.steps, 7);
  EXPECT_EQ(train.seed, 3);
  EXPECT_EQ(train.global_batch, 32);
  EXPECT_FALSE(train.deterministic);
  EXPECT_EQ(train.cuda_graphs, CudaGraphs::always);
  EXPECT_EQ(train.checkpoint_every, 5);
  EXPECT_EQ(train.keep_checkpoints, 4);
  EXPECT_EQ(train.validate_every, 6);
  EXPECT_EQ(train.validation_samples, 0);
  EXPECT_EQ(train.ahead, 3);
  EXPECT_EQ(train.peer_timeout_s, 1.5);
  EXPECT_EQ(train.clip, ClipScope::global);
  EXPECT_EQ(train.out, "runs/x");
  EXPECT_NO_THROW(root.finish());
}

TEST(JobReader, an_absent_table_gives_the_defaults) {
  const auto train = read_train(root_of("").table("train"));
  EXPECT_EQ(train.steps, TrainConfig{}.steps);
  EXPECT_EQ(train.clip, TrainConfig{}.clip);
  const auto transport = read_transport(root_of("").table("transport"));
  EXPECT_EQ(transport.listen, TransportConfig{}.listen);
}

TEST(JobReader, refuses_impossible_training_settings) {
  EXPECT_EQ(train_error("global_batch = 0"), "job.toml:2: train.global_batch: must be from 1 to 1048576, got 0");
  EXPECT_EQ(train_error("ahead = 0"), "job.toml:2: train.ahead: must be from 1 to 1024, got 0");
  EXPECT_EQ(train_error("validation_samples = -1"),
            "job.toml:2: train.validation_samples: must be from 0 to 1099511627776, got -1");
  EXPECT_EQ(train_error("peer_timeout_s = 0"),
            "job.toml:2: train.peer_timeout_s: must be at least 0.001 and at most 1e+06, got 0");
  EXPECT_EQ(train_error("clip = \"globl\""),
            "job.toml:2: train.clip: \"globl\" is not one of section, global; did you mean 'global'?");
  EXPECT_EQ(train_error("out = \"\""), "job.toml:2: train.out: must not be empty; give a folder for the run's files");
  for (const std::string key : {"steps", "keep_checkpoints"}) {
    EXPECT_THAT(train_error(key + " = 0"), HasSubstr("must be from 1 to ")) << key;
  }
  EXPECT_THAT(train_error("seed = -1"), HasSubstr("must be at least 0"));
  for (const std::string key : {"checkpoint_every", "validate_every"}) {
    EXPECT_THAT(train_error(key + " = -1"), HasSubstr("must be from 0 to ")) << key;
  }
}

TEST(JobReader, refuses_counts_and_times_beyond_any_run_at_once) {
  EXPECT_EQ(train_error("global_batch = 4294967296"),
            "job.toml:2: train.global_batch: must be from 1 to 1048576, got 4294967296");
  const std::string huge = " = " + std::to_string(INT64_MAX);
  for (const std::string key :
       {"steps", "global_batch", "checkpoint_every", "keep_checkpoints", "validate_every", "validation_samples"}) {
    EXPECT_THAT(train_error(key + huge), HasSubstr("must be from")) << key;
  }
  EXPECT_THAT(data_error("path = \"x\"\nsequence" + huge), HasSubstr("must be from 1 to 16777216"));
  EXPECT_THAT(train_error("peer_timeout_s = 1e300"), HasSubstr("train.peer_timeout_s: must be at least 0.001"));
  for (const std::string key : {"timeout_s", "start_timeout_s"}) {
    for (const std::string value : {"1e300", "1e-300", "0", "-1", "inf", "nan"}) {
      EXPECT_THAT(transport_error(key + " = " + value),
                  HasSubstr("transport." + key + ": must be at least 0.001 and at most 1e+06"))
          << value;
    }
  }
  EXPECT_THAT(schedule_error("budget_ms = 1e300"), HasSubstr("schedule.budget_ms: must be"));
}

TEST(JobReader, reads_every_key_of_data) {
  const auto root = root_of(
      "[data]\nkind = \"text\"\npath = \"corpus\"\ntokenizer = \"bytes\"\nsequence = 64\n"
      "vocabulary = 512\nvalidation_fraction = 0.25\n");
  const auto data = read_data(root.table("data"));
  EXPECT_EQ(data.kind, DataKind::text);
  EXPECT_EQ(data.path, "corpus");
  EXPECT_EQ(data.tokenizer, "bytes");
  EXPECT_EQ(data.sequence, 64);
  EXPECT_EQ(data.vocabulary, 512);
  EXPECT_EQ(data.validation_fraction, 0.25);
  EXPECT_NO_THROW(root.finish());
}

TEST(JobReader, lengths_of_generated_samples_are_a_known_distribution_or_points) {
  const auto lengths_of = [](const std::string& keys) {
    return read_data(root_of("[data]\nkind = \"synthetic\"\n" + keys).table("data"));
  };
  EXPECT_TRUE(lengths_of("").lengths.empty());
  EXPECT_EQ(lengths_of("lengths = \"wikipedia\"").lengths, published_lengths()[3].second);
  EXPECT_EQ(lengths_of("lengths = [[64, 1], [512, 0.62]]\nlongest = 300").lengths,
            (LengthPoints{{64, 1}, {512, 0.62}}));
  EXPECT_EQ(lengths_of("lengths = \"byted\"\nlongest = 300").longest, 300);
  for (const auto& [name, points] : published_lengths()) {
    EXPECT_EQ(lengths_of("lengths = \"" + name + "\"").lengths, points) << name;
  }
}

TEST(JobReader, lengths_that_make_no_distribution_are_refused_in_one_line) {
  const std::string generated = "kind = \"synthetic_images\"\n";
  EXPECT_EQ(data_error(generated + "lengths = \"bytd\""),
            "job.toml:3: data.lengths: \"bytd\" is not one of github, byted, commoncrawl, wikipedia; did you mean "
            "'byted'?");
  EXPECT_EQ(data_error(generated + "lengths = [[64, 0.9]]"),
            "job.toml:3: data.lengths: point 1: the share is 0.9, but all samples reach the first length; use 1");
  EXPECT_THAT(data_error(generated + "lengths = [[64, 1], [64, 0.5]]"),
              HasSubstr("point 2: the length 64 must be above 64"));
  EXPECT_THAT(data_error(generated + "lengths = [[64, 1], [65, 1]]"),
              HasSubstr("point 2: the share 1 must be greater than 0 and less than 1"));
  EXPECT_THAT(data_error(generated + "lengths = [[64, 1], [65, 0.0]]"), HasSubstr("must be greater than 0"));
  EXPECT_THAT(data_error(generated + "lengths = [[1, 1]]"), HasSubstr("must be an integer from 2 to 16777216"));
  EXPECT_THAT(data_error(generated + "lengths = [[2.5, 1]]"), HasSubstr("must be an integer from 2 to"));
  EXPECT_THAT(data_error(generated + "lengths = [[nan, 1]]"), HasSubstr("must be an integer from 2 to"));
  EXPECT_THAT(data_error(generated + "lengths = []"), HasSubstr("is an empty list"));
  EXPECT_THAT(data_error(generated + "longest = 64"), HasSubstr("applies only with lengths; use sequence"));
  EXPECT_THAT(data_error(generated + "lengths = \"byted\"\nlongest = 1"), HasSubstr("the least is 2"));
  EXPECT_THAT(data_error(generated + "lengths = \"byted\"\nsequence = 64"),
              HasSubstr("data.sequence: conflicts with lengths"));
  EXPECT_THAT(data_error("path = \"x\"\nlengths = \"byted\""),
              HasSubstr("belongs to kind = \"synthetic\" and \"synthetic_images\""));
}

TEST(JobReader, a_text_corpus_needs_a_path_and_a_synthetic_one_takes_none) {
  EXPECT_EQ(data_error(""), "job.toml:1: data.path: kind = \"text\" needs data.path, a text file or a folder of them");
  EXPECT_THAT(data_error("kind = \"text\""), HasSubstr("job.toml:2: data.kind: "));
  EXPECT_THAT(data_error("kind = \"synthetic\"\npath = \"x\""), HasSubstr("job.toml:3: data.path: "));
  EXPECT_EQ(data_error("kind = \"synthetic\""), "(no error)");
}

TEST(JobReader, the_limit_of_a_folders_files_is_of_text_alone_and_above_zero) {
  EXPECT_EQ(read_data(root_of("[data]\npath = \"x\"\nmax_file_mb = 0.5\n").table("data")).max_file_mb, 0.5);
  EXPECT_EQ(read_data(root_of("[data]\npath = \"x\"\n").table("data")).max_file_mb, 4);
  EXPECT_THAT(data_error("path = \"x\"\nmax_file_mb = 0"), HasSubstr("data.max_file_mb: must be greater than 0"));
  EXPECT_THAT(data_error("kind = \"synthetic\"\nmax_file_mb = 1"), HasSubstr("belongs to kind = \"text\""));
}

TEST(JobReader, the_keys_of_texts_belong_to_kinds_with_texts) {
  const DataConfig read =
      read_data(root_of("[data]\npath = \"x\"\nas_text = true\nbegin_of_text = false\n").table("data"));
  EXPECT_TRUE(read.as_text);
  EXPECT_FALSE(read.begin_of_text);
  EXPECT_TRUE(DataConfig().begin_of_text);
  EXPECT_THAT(data_error("kind = \"chat\"\npath = \"x\"\nas_text = true"), HasSubstr("belongs to kind = \"text\""));
  EXPECT_EQ(data_error("kind = \"llava\"\npath = \"x\"\nbegin_of_text = false"), "(no error)");
  EXPECT_THAT(data_error("kind = \"prepared\"\npath = \"x\"\nbegin_of_text = true"),
              HasSubstr("`maestro prepare` has settled it"));
  EXPECT_THAT(data_error("kind = \"synthetic\"\nbegin_of_text = true"),
              HasSubstr("data.begin_of_text: does not apply"));
}

TEST(JobReader, the_validation_fraction_lies_strictly_between_zero_and_one) {
  for (const std::string value : {"0.0", "1.0", "-0.5", "nan", "inf"}) {
    EXPECT_THAT(data_error("path = \"x\"\nvalidation_fraction = " + value),
                HasSubstr("data.validation_fraction: must be greater than 0 and less than 1"))
        << value;
  }
}

TEST(JobReader, reads_every_key_of_pictures) {
  const auto root = root_of(
      "[data]\nkind = \"llava\"\npath = \"a.json\"\nimages = \"pictures\"\nvalidation_path = \"b.json\"\n"
      "patch = 16\nimage_size = 32\nmax_image_size = 512\nmax_bad_samples = 7\n");
  const auto data = read_data(root.table("data"));
  EXPECT_EQ(data.kind, DataKind::llava);
  EXPECT_EQ(data.images, "pictures");
  EXPECT_EQ(data.validation_path, "b.json");
  EXPECT_EQ(data.patch, 16);
  EXPECT_EQ(data.image_size, 32);
  EXPECT_EQ(data.max_image_size, 512);
  EXPECT_EQ(data.max_bad_samples, 7);
  EXPECT_NO_THROW(root.finish());
  const auto noise = root_of("[data]\nkind = \"synthetic_images\"\nimage_share = 0.25\n");
  EXPECT_EQ(read_data(noise.table("data")).image_share, 0.25);
}

TEST(JobReader, keys_of_pictures_are_refused_where_the_corpus_has_none) {
  EXPECT_THAT(data_error("path = \"x\"\npatch = 4"),
              HasSubstr("job.toml:3: data.patch: does not apply to kind = \"text\""));
  EXPECT_THAT(data_error("kind = \"synthetic\"\nmax_bad_samples = 1"), HasSubstr("belongs to kind = \"llava\""));
  EXPECT_THAT(data_error("kind = \"llava\"\npath = \"x\"\nimage_share = 0.5"),
              HasSubstr("belongs to kind = \"synthetic_images\""));
}

TEST(JobReader, an_image_processor_replaces_the_keys_of_patches) {
  const std::string chat = "kind = \"chat\"\npath = \"x\"\nprocessor = \"model\"\n";
  const DataConfig data =
      read_data(root_of("[data]\n" + chat + "resample_order = \"horizontal\"\nimages = \"i\"").table("data"));
  EXPECT_EQ(data.processor, "model");
  EXPECT_EQ(data.tokenizer, "model");
  EXPECT_EQ(data.images, "i");
  EXPECT_EQ(data.resample_order, ResampleOrder::horizontal);
  for (const std::string key : {"patch = 8", "image_size = 64", "max_image_size = 64"}) {
    EXPECT_THAT(data_error(chat + key),
                HasSubstr("has no effect: images are cut by the processor in data.processor = \"model\""));
  }
  EXPECT_THAT(data_error(chat + "validation_path = \"v\""), HasSubstr("belongs to kind = \"llava\""));
  const std::string llava = "kind = \"llava\"\npath = \"x\"\nprocessor = \"model\"\n";
  EXPECT_EQ(data_error(llava + "template = \"chatml\"\nlearn = \"last\"\npacking = \"documents\""), "(no error)");
  EXPECT_EQ(data_error(llava + "validation_path = \"v\""), "(no error)");
  EXPECT_EQ(data_error("kind = \"llava\"\npath = \"x\"\nlearn = \"last\"\nlong = \"drop\""), "(no error)");
  EXPECT_THAT(data_error("kind = \"chat\"\npath = \"x\"\nresample_order = \"pillow13\""),
              HasSubstr("needs data.processor, whose images it resizes"));
  EXPECT_THAT(data_error("kind = \"chat\"\npath = \"x\"\nimages = \"i\""), HasSubstr("or to rows with data.processor"));
  EXPECT_THAT(data_error("kind = \"synthetic\"\nprocessor = \"model\""),
              HasSubstr("does not apply to kind = \"synthetic\""));
  EXPECT_EQ(data_error("kind = \"prepared\"\npath = \"x\"\nprocessor = \"model\""), "(no error)");
  EXPECT_THAT(data_error("kind = \"prepared\"\npath = \"x\"\nprocessor = \"model\"\nimages = \"i\""),
              HasSubstr("or to rows with data.processor"));
}

TEST(JobReader, picture_sizes_must_hold_whole_patches) {
  const std::string llava = "kind = \"llava\"\npath = \"x\"\n";
  EXPECT_EQ(data_error(llava + "tokenizer = \"folder\""), "(no error)");
  EXPECT_THAT(data_error("kind = \"synthetic\"\ntokenizer = \"folder\""),
              HasSubstr("belongs to kind = \"text\", \"chat\", \"parquet\", \"webdataset\" and \"llava\""));
  EXPECT_THAT(data_error("kind = \"text\"\npath = \"x\"\ntokenizer = \"no-owner/no-model\""),
              HasSubstr("data.tokenizer: no-owner/no-model: no such folder, and no model of this name"));
  EXPECT_THAT(data_error(llava + "image_size = 60"),
              HasSubstr("data.image_size: image_size = 60 is not a multiple of patch = 8; the nearest below is 56"));
  EXPECT_THAT(data_error(llava + "patch = 7"), HasSubstr("data.patch: image_size = 64 is not a multiple of patch = 7"));
  EXPECT_EQ(data_error(llava + "image_size = 0"), "(no error)") << "native size";
  EXPECT_THAT(data_error("kind = \"synthetic_images\"\nimage_size = 0"), HasSubstr("must be"));
  EXPECT_THAT(data_error(llava + "image_size = 0\nmax_image_size = 7"),
              HasSubstr("is smaller than a patch of 8 pixels"));
  EXPECT_THAT(data_error(llava + "max_bad_samples = -1"), HasSubstr("must be from 0 to "));
  const std::string noise = "kind = \"synthetic_images\"\n";
  EXPECT_THAT(data_error(noise + "image_size = 60"),
              HasSubstr("data.image_size: image_size = 60 is not a multiple of patch = 8; the nearest below is 56"));
  EXPECT_THAT(data_error(noise + "image_size = 7"), HasSubstr("the nearest below is 8")) << "never zero patches";
}

TEST(JobReader, a_picture_of_a_single_patch_is_large_enough) {
  const std::string llava = "kind = \"llava\"\npath = \"x\"\n";
  EXPECT_EQ(data_error(llava + "patch = 16\nimage_size = 16\nmax_image_size = 16"), "(no error)");
  EXPECT_THAT(data_error(llava + "patch = 16\nimage_size = 16\nmax_image_size = 15"),
              HasSubstr("is smaller than a patch of 16"));
  EXPECT_EQ(data_error("kind = \"synthetic_images\"\npatch = 16\nimage_size = 16"), "(no error)");
}

TEST(JobReader, a_misspelt_kind_of_data_is_refused_with_the_nearest) {
  EXPECT_EQ(
      data_error("kind = \"synthetik\""),
      "job.toml:2: data.kind: \"synthetik\" is not one of text, chat, parquet, webdataset, prepared, llava, synthetic, "
      "synthetic_images; did "
      "you mean "
      "'synthetic'?");
}

TEST(JobReader, conversations_need_a_path_and_one_way_to_validate) {
  EXPECT_THAT(data_error("kind = \"llava\""), HasSubstr("data.kind: kind = \"llava\" needs data.path"));
  EXPECT_THAT(data_error("kind = \"llava\"\npath = \"a\"\nvalidation_path = \"b\"\nvalidation_fraction = 0.1"),
              HasSubstr("job.toml:5: data.validation_fraction: conflicts with validation_path"));
  EXPECT_THAT(data_error("kind = \"synthetic_images\"\npath = \"a\""), HasSubstr("reads no file"));
}

TEST(JobReader, reads_every_key_of_transport) {
  const auto root = root_of(
      "[transport]\nprovider = \"tcp\"\nforce_rma = true\nslots = 3\nchunk_kib = 64\n"
      "timeout_s = 2\nlisten = \"::1\"\nport = 65535\n");
  const auto transport = read_transport(root.table("transport"));
  EXPECT_EQ(transport.provider, "tcp");
  EXPECT_TRUE(transport.force_rma);
  EXPECT_EQ(transport.slots, 3);
  EXPECT_EQ(transport.chunk_kib, 64);
  EXPECT_EQ(transport.timeout_s, 2.0);
  EXPECT_EQ(transport.listen, "::1");
  EXPECT_EQ(transport.port, 65535);
  EXPECT_NO_THROW(root.finish());
}

TEST(JobReader, refuses_impossible_transport_settings) {
  EXPECT_EQ(transport_error("port = 65536"), "job.toml:2: transport.port: must be from 0 to 65535, got 65536");
  EXPECT_EQ(transport_error("provider = \"tpc\""),
            "job.toml:2: transport.provider: \"tpc\" is not one of auto, shm, tcp, verbs, efa; did you mean 'tcp'?");
  EXPECT_THAT(transport_error("slots = 0"), HasSubstr("must be from 1 to 64"));
  EXPECT_THAT(transport_error("chunk_kib = 0"), HasSubstr("must be from 1 to"));
  EXPECT_THAT(transport_error("timeout_s = -1"), HasSubstr("must be at least 0.001"));
  for (const std::string address : {"localhost", "256.0.0.1", "127.0.0.1:80", "", "1.2.3", ":::"}) {
    EXPECT_THAT(transport_error("listen = \"" + address + "\""),
                HasSubstr("job.toml:2: transport.listen: expected an address such as 127.0.0.1"))
        << address;
  }
}

TEST(JobReader, a_process_listens_on_an_address_an_interface_or_what_leads_to_rank_0) {
  for (const std::string place : {"127.0.0.1", "::1", "10.0.0.7", "eth0", "ib0.1", "fifteenletters1", "auto"}) {
    EXPECT_NO_THROW((void)read_transport(root_of("[transport]\nlisten = \"" + place + "\"").table("transport")))
        << place;
  }
  EXPECT_THROW((void)read_transport(root_of("[transport]\nlisten = \"sixteenletters12\"").table("transport")),
               JobError);
}

}  // namespace
}  // namespace maestro
