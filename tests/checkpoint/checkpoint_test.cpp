// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/checkpoint/checkpoint_folders.hpp"
#include "runtime/checkpoint/checkpoint_store.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/observe/temporary_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

CheckpointStore store_in(const fs::path& root, std::int64_t keep = 2) {
  return CheckpointStore(root, {.keep = keep, .after = {}});
}

const RunIdentity one{"00000000000000a1", "one", "2026-11-22 14:30:00 UTC"};
const RunIdentity other{"00000000000000b2", "other", "2026-11-21 14:30:00 UTC"};

void append_to(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

TEST(Checkpoint, a_section_reads_back_bit_for_bit) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path() / "run" / "checkpoints");
  const Status written = write_checkpoint(store, 123);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const fs::path checkpoint = store.latest().value_or_throw();
  EXPECT_EQ(checkpoint.filename(), "step-00000123");
  auto read = read_section(checkpoint, "student");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const StoredSection stored = *std::move(read);
  SmallSection section(123);
  const SectionState expected = section.state();
  EXPECT_EQ(stored.state.config, expected.config);
  EXPECT_EQ(stored.state.optimizer_step, 123u);
  ASSERT_EQ(stored.state.parameters.size(), 1u);
  ASSERT_EQ(stored.state.optimizer.size(), 2u);
  for (std::size_t at = 0; at < 2; ++at) {
    const auto& [name, tensor] = expected.optimizer[at];
    EXPECT_EQ(stored.state.optimizer[at].name, name);
    EXPECT_EQ(std::memcmp(stored.state.optimizer[at].tensor.raw(), tensor.raw(), tensor.bytes()), 0);
  }
  EXPECT_EQ(stored.model.at(0).metadata().at("format"), "pt");
}

TEST(Checkpoint, the_manifest_carries_the_state_of_the_run) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  const fs::path staging = store.begin(StepId(7)).value_or_throw();
  Manifest manifest;
  manifest.step = 7;
  manifest.seed = 5;
  manifest.random_state = {1, 2};
  ASSERT_TRUE(store.commit(staging, manifest).ok());
  const Manifest back = load_checkpoint(store.latest().value_or_throw()).value_or_throw();
  EXPECT_EQ(back.step, 7u);
  EXPECT_EQ(back.seed, 5u);
  EXPECT_EQ(back.random_state, manifest.random_state);
  EXPECT_FALSE(back.maestro_version.empty());
}

TEST(Checkpoint, only_the_last_ones_are_kept_CK3) {  // CK-3
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path(), 2);
  for (const std::uint64_t step : {10u, 20u, 30u, 40u}) ASSERT_TRUE(write_checkpoint(store, step).ok());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000030", "step-00000040"));
}

TEST(Checkpoint, after_going_back_the_last_committed_one_counts_whatever_its_step_CK3) {  // CK-3
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path(), 2);
  for (const std::uint64_t step : {30u, 40u, 35u}) ASSERT_TRUE(write_checkpoint(store, step).ok());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000035", "step-00000040"));
  EXPECT_EQ(store.latest().value_or_throw().filename(), "step-00000035");
}

TEST(Checkpoint, sequence_numbers_go_on_rising_after_going_back_CK3) {  // CK-3
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path(), 2);
  for (const std::uint64_t step : {30u, 40u, 35u, 36u}) ASSERT_TRUE(write_checkpoint(store, step).ok());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000035", "step-00000036"));
  EXPECT_EQ(store.latest().value_or_throw().filename(), "step-00000036");
}

TEST(Checkpoint, what_a_crash_left_in_the_staging_folder_of_a_step_is_not_in_its_checkpoint_CK4) {  // CK-4
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  SmallSection section(5);
  for (const std::string& run : {std::string(), one.id}) {
    const fs::path left = store.begin(StepId(5), run).value_or_throw();
    ASSERT_TRUE(store.write_section(left, "ghost", section.state()).ok());
  }
  ASSERT_TRUE(write_checkpoint(store, 5).ok());
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000005" / "ghost"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000005", "step-00000005." + one.id + ".tmp"));
  ASSERT_TRUE(write_checkpoint(store, 6, 6, one).ok());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000005", "step-00000006"));
}

TEST(Checkpoint, the_staging_folder_of_a_later_step_stays_for_its_commit) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  const fs::path later = store.begin(StepId(6)).value_or_throw();
  SmallSection section(6);
  Manifest manifest;
  manifest.step = 6;
  manifest.files = store.write_section(later, "student", section.state()).value_or_throw();
  ASSERT_TRUE(write_checkpoint(store, 5).ok());
  EXPECT_EQ(store.latest().value_or_throw().filename(), "step-00000005");
  ASSERT_TRUE(store.commit(later, manifest).ok());
  EXPECT_EQ(store.latest().value_or_throw().filename(), "step-00000006");
  EXPECT_TRUE(verify_checkpoint(store.latest().value_or_throw()).ok());
}

TEST(Checkpoint, nothing_of_another_run_is_counted_replaced_or_removed_CK5) {  // CK-5
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path(), 1);
  ASSERT_TRUE(write_checkpoint(store, 9, 9).ok());
  ASSERT_TRUE(write_checkpoint(store, 10, 10, other).ok());
  const fs::path staged = store.begin(StepId(2), other.id).value_or_throw();
  for (const std::uint64_t step : {1u, 2u, 3u}) ASSERT_TRUE(write_checkpoint(store, step, step, one).ok());
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre(staged.filename().string(), "step-00000003", "step-00000009", "step-00000010"));
  const Status refused = write_checkpoint(store, 9, 1, one);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("step-00000009"), HasSubstr("another run"), IsOneLine()));
  EXPECT_EQ(load_checkpoint(folder.path() / "step-00000009").value_or_throw().data_position, 9u);
}

TEST(Checkpoint, a_replaced_checkpoint_of_another_run_bars_its_step_CK5) {  // CK-5
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 9, 9, other).ok());
  fs::rename(folder.path() / "step-00000009", folder.path() / "step-00000009.old");
  ASSERT_TRUE(write_checkpoint(store, 9, 1, one).ok()) << "nothing has to step aside";
  const Status refused = write_checkpoint(store, 9, 2, one);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("step-00000009.old"), HasSubstr("another run"), IsOneLine()));
  EXPECT_EQ(load_checkpoint(folder.path() / "step-00000009.old").value_or_throw().data_position, 9u);
  EXPECT_EQ(load_checkpoint(folder.path() / "step-00000009").value_or_throw().data_position, 1u);
}

TEST(Checkpoint, the_latest_one_is_asked_for_by_run_where_there_are_several) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 683, 1, other).ok());
  ASSERT_TRUE(write_checkpoint(store, 5, 1, one).ok());
  EXPECT_EQ(latest_checkpoint(folder.path(), one.id).value_or_throw().filename(), "step-00000005");
  EXPECT_EQ(latest_checkpoint(folder.path(), other.id).value_or_throw().filename(), "step-00000683");
  const auto any = latest_checkpoint(folder.path());
  ASSERT_FALSE(any.ok());
  EXPECT_THAT(any.error().message,
              AllOf(HasSubstr("step-00000683 (job 'other')"), HasSubstr("step-00000005 (job 'one')"),
                    HasSubstr("name the one to resume from"), IsOneLine()));
}

TEST(Checkpoint, a_second_checkpoint_of_one_step_replaces_the_first) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 10, 1).ok());
  ASSERT_TRUE(write_checkpoint(store, 10, 2).ok());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000010"));
  EXPECT_EQ(load_checkpoint(store.latest().value_or_throw()).value_or_throw().data_position, 2u);
}

TEST(Checkpoint, damage_is_found_and_every_damaged_file_named) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 10).ok());
  const fs::path checkpoint = store.latest().value_or_throw();
  ASSERT_TRUE(verify_checkpoint(checkpoint).ok());
  fs::remove(checkpoint / "teacher/config.json");
  append_to(checkpoint / "student/optimizer.safetensors", "x");
  std::string model = contents_of(checkpoint / "student/model.safetensors");
  model.back() = static_cast<char>(model.back() ^ 1);
  std::ofstream(checkpoint / "student/model.safetensors", std::ios::binary) << model;
  const Status verified = verify_checkpoint(checkpoint);
  ASSERT_FALSE(verified.ok());
  EXPECT_EQ(verified.error().code, ErrorCode::corrupt);
  EXPECT_THAT(verified.error().message,
              AllOf(HasSubstr("teacher/config.json is missing"), HasSubstr("student/optimizer.safetensors has"),
                    HasSubstr("student/model.safetensors was altered"), IsOneLine()));
  EXPECT_THAT(read_section(checkpoint, "student").error().message, HasSubstr("student/model.safetensors was altered"));
}

TEST(Checkpoint, a_section_that_is_not_there_is_answered_with_those_that_are) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 10).ok());
  const auto read = read_section(store.latest().value_or_throw(), "studnet");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::not_found);
  EXPECT_THAT(read.error().message, AllOf(HasSubstr("studnet"), HasSubstr("student, teacher"), IsOneLine()));
}

TEST(Checkpoint, a_damaged_latest_one_is_reported_rather_than_passed_over) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 10).ok());
  ASSERT_TRUE(write_checkpoint(store, 20).ok());
  fs::resize_file(folder.path() / "step-00000020/checkpoint.json", 40);
  const Result<fs::path> latest = store.latest();
  ASSERT_FALSE(latest.ok());
  EXPECT_THAT(latest.error().message,
              AllOf(HasSubstr("step-00000020/checkpoint.json"), HasSubstr("step-00000010"), IsOneLine()));
  ASSERT_TRUE(write_checkpoint(store, 30).ok()) << "training goes on all the same";
  EXPECT_EQ(store.latest().value_or_throw().filename(), "step-00000030");
}

TEST(Checkpoint, commit_refuses_what_was_not_staged_as_recorded) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  const fs::path staging = store.begin(StepId(5)).value_or_throw();
  SmallSection section(5);
  Manifest manifest;
  manifest.step = 5;
  manifest.files = store.write_section(staging, "student", section.state()).value_or_throw();
  Manifest other_step = manifest;
  other_step.step = 6;
  EXPECT_THAT(store.commit(staging, other_step).error().message, HasSubstr("not the staging folder of step 6"));
  fs::resize_file(staging / "student/model.safetensors", 3);
  EXPECT_THAT(store.commit(staging, manifest).error().message, HasSubstr("student/model.safetensors has 3 bytes"));
  fs::remove(staging / "student/model.safetensors");
  EXPECT_THAT(store.commit(staging, manifest).error().message, HasSubstr("student/model.safetensors"));
  EXPECT_FALSE(store.latest().ok());
}

TEST(Checkpoint, section_names_that_cannot_be_folders_are_refused) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path());
  const fs::path staging = store.begin(StepId(5)).value_or_throw();
  for (const char* name : {"", "../x", "a/b", ".hidden", "a b"}) {
    EXPECT_FALSE(store.write_section(staging, name, SectionState{}).ok()) << name;
  }
}

TEST(Checkpoint, a_store_that_cannot_be_written_says_where_and_why) {
  const TempFolder folder;
  const fs::path file = folder.write("file", "");
  const auto staging = store_in(file / "checkpoints").begin(StepId(1));
  ASSERT_FALSE(staging.ok());
  EXPECT_THAT(staging.error().message, AllOf(HasSubstr("file/checkpoints"), HasSubstr("Not a directory"), IsOneLine()));
  const auto records = store_in(folder.path()).write_section(folder.path() / "gone", "student", SectionState{});
  ASSERT_FALSE(records.ok());
  EXPECT_THAT(records.error().message, HasSubstr("gone/student: No such file"));
  EXPECT_THROW(store_in(folder.path(), 0), JobError);
}

TEST(ResolveCheckpoint, a_run_its_checkpoints_folder_or_one_checkpoint_name_the_same) {
  const TempFolder folder;
  const fs::path run = folder.path() / "run";
  const CheckpointStore store = store_in(run / "checkpoints");
  ASSERT_TRUE(write_checkpoint(store, 10).ok());
  ASSERT_TRUE(write_checkpoint(store, 20).ok());
  const fs::path latest = run / "checkpoints" / "step-00000020";
  for (const fs::path& given : {run, run / "", run / "checkpoints", run / "checkpoints/", latest, latest / ""}) {
    EXPECT_EQ(resolve_checkpoint(given).value_or_throw(), latest) << given;
  }
  const fs::path earlier = run / "checkpoints" / "step-00000010";
  EXPECT_EQ(resolve_checkpoint(earlier).value_or_throw(), earlier);
}

TEST(ResolveCheckpoint, a_run_folder_means_the_run_that_its_record_names) {
  const TempFolder folder;
  const CheckpointStore store = store_in(folder.path() / "checkpoints");
  ASSERT_TRUE(write_checkpoint(store, 683, 1, other).ok());
  ASSERT_TRUE(write_checkpoint(store, 5, 1, one).ok());
  for (const fs::path& given : {folder.path(), folder.path() / "checkpoints"}) {
    folder.write("run.json", run_identity_text(one));
    EXPECT_EQ(resolve_checkpoint(given).value_or_throw().filename(), "step-00000005") << given;
    folder.write("run.json", run_identity_text(other));
    EXPECT_EQ(resolve_checkpoint(given).value_or_throw().filename(), "step-00000683") << given;
    folder.write("run.json", run_identity_text({"00000000000000c3", "third", ""}));
    EXPECT_THAT(resolve_checkpoint(given).error().message,
                AllOf(HasSubstr("run.json"), HasSubstr("step-00000005 (job 'one')"), IsOneLine()));
    folder.write("run.json", "{\"run_id\": \"../..\"}");
    EXPECT_THAT(resolve_checkpoint(given).error().message, AllOf(HasSubstr("run.json"), IsOneLine()));
  }
  const fs::path named = folder.path() / "checkpoints" / "step-00000683";
  EXPECT_EQ(resolve_checkpoint(named).value_or_throw(), named) << "a checkpoint is what it is";
}

TEST(ResolveCheckpoint, what_holds_no_checkpoint_is_told_what_was_looked_for) {
  const TempFolder folder;
  fs::create_directories(folder.path() / "run" / "checkpoints" / "step-00000007.tmp");
  const auto refusal = [](const fs::path& path) {
    const auto resolved = resolve_checkpoint(path);
    EXPECT_FALSE(resolved.ok());
    EXPECT_THAT(resolved.error().message, AllOf(HasSubstr(path.string()), IsOneLine()));
    return resolved.error().message;
  };
  const fs::path run = folder.path() / "run";
  EXPECT_THAT(refusal(run), AllOf(HasSubstr("run/checkpoint.json"), HasSubstr("checkpoints/step-*")));
  EXPECT_THAT(refusal(folder.path() / "rum"),
              AllOf(HasSubstr("does not exist"), HasSubstr("nearest is " + run.string())));
  EXPECT_THAT(refusal(run / "checkpoints" / "step-00000007.tmp"), HasSubstr("unfinished"));
  ASSERT_TRUE(write_checkpoint(store_in(folder.path() / "other"), 8).ok());
  const fs::path removed = folder.path() / "other" / checkpoint_folder_name(8, CheckpointKind::removed);
  fs::rename(folder.path() / "other" / "step-00000008", removed);  // with its manifest, as after a crash
  EXPECT_THAT(refusal(removed), HasSubstr("unfinished"));
  EXPECT_THAT(refusal(folder.write("file", "")), HasSubstr("not a folder"));
}

TEST(CheckpointFolders, a_name_says_step_and_kind) {
  for (const std::uint64_t step : {0ull, 123ull, 1234567890ull}) {
    for (const auto kind :
         {CheckpointKind::complete, CheckpointKind::replaced, CheckpointKind::staging, CheckpointKind::removed}) {
      const auto parsed = parse_checkpoint_folder(fs::path("root") / checkpoint_folder_name(step, kind));
      ASSERT_TRUE(parsed.has_value());
      EXPECT_EQ(parsed->step, step);
      EXPECT_EQ(parsed->kind, kind);
    }
  }
  EXPECT_EQ(checkpoint_folder_name(123, CheckpointKind::complete), "step-00000123");
  const auto staged = parse_checkpoint_folder(checkpoint_folder_name(7, CheckpointKind::staging, one.id));
  ASSERT_TRUE(staged.has_value());
  EXPECT_EQ(staged->run, one.id);
  EXPECT_EQ(staged->step, 7u);
  for (const char* none : {"step-7", "step-", "step-0000000x", "step-00000007.bak", "x", "step-00000007.tmp.tmp",
                           "step-00000007.00000000000000a1", "step-00000007.00000000000000a1.old"}) {
    EXPECT_FALSE(parse_checkpoint_folder(none).has_value()) << none;
  }
}

}  // namespace
}  // namespace maestro
