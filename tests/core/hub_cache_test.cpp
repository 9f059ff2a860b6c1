// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/hub_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class HubCache : public testing::Test {
 protected:
  [[nodiscard]] fs::path place(const std::string& relative, const std::string& content = "{}") const {
    return folder_.write(relative, content);
  }
  [[nodiscard]] HubEnvironment environment() const {
    const std::string base = folder_.path().string();
    return {"", base + "/hf", base + "/xdg", base + "/home"};
  }
  [[nodiscard]] std::string found(const std::string& name) const {
    const auto folder = find_model(name, environment());
    return folder ? fs::path(*folder).lexically_relative(folder_.path()).string()
                  : "refused: " + folder.error().message;
  }

  TempFolder folder_;
};

TEST_F(HubCache, is_looked_for_where_huggingface_hub_keeps_it) {
  EXPECT_THAT(hub_caches({"/a", "/b", "/c", "/d"}),
              ElementsAre("/a", "/b/hub", "/c/huggingface/hub", "/d/.cache/huggingface/hub"));
  EXPECT_THAT(hub_caches({"", "", "", "/d"}), ElementsAre("/d/.cache/huggingface/hub"));
  EXPECT_TRUE(hub_caches({}).empty());
}

TEST_F(HubCache, only_an_owner_and_a_model_are_a_name_of_the_hub) {
  for (const char* name : {"Qwen/Qwen3-0.6B", "openai-community/gpt2", "a/b_c.d"})
    EXPECT_TRUE(is_hub_name(name)) << name;
  for (const char* name : {"", "gpt2", "/gpt2", "gpt2/", "./gpt2", "../gpt2", "a/b/c", "a b/c", "~/c", "a/.b"}) {
    EXPECT_FALSE(is_hub_name(name)) << name;
  }
  EXPECT_TRUE(is_hub_name("a/" + std::string(96, 'b')));
  EXPECT_FALSE(is_hub_name("a/" + std::string(97, 'b')));
}

TEST_F(HubCache, gives_the_snapshot_of_refs_main_or_else_the_only_snapshot) {
  const std::string model = "home/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/";
  (void)place(model + "snapshots/abc/config.json");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"), model + "snapshots/abc");
  (void)place(model + "snapshots/def/config.json");
  EXPECT_THAT(found("Qwen/Qwen3-0.6B"), AllOf(HasSubstr("2 snapshots and no refs/main"), HasSubstr("name the folder")));
  (void)place(model + "refs/main", "def\n");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"), model + "snapshots/def");
  (void)place("hf/hub/models--Qwen--Qwen3-0.6B/snapshots/first/config.json");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"), "hf/hub/models--Qwen--Qwen3-0.6B/snapshots/first") << "$HF_HOME comes first";
}

TEST_F(HubCache, refuses_a_model_without_a_usable_snapshot) {
  const std::string model = "hf/hub/models--a--b/";
  for (const char* commit : {"gone", "../../../secret", ""}) {
    (void)place(model + "refs/main", commit);
    EXPECT_THAT(found("a/b"), AllOf(HasSubstr("which is missing"), HasSubstr("`hf download a/b --local-dir DIR`")))
        << commit;
  }
  fs::remove(folder_.path() / model / "refs/main");
  EXPECT_THAT(found("a/b"), HasSubstr("holds no snapshot"));
}

TEST_F(HubCache, a_missing_model_is_refused_with_the_folders_of_the_search_and_the_download) {
  const std::string base = folder_.path().string();
  EXPECT_EQ(found("a/b"),
            "refused: a/b: no such folder, and no model of this name in the hub's cache (" + base + "/hf/hub, " + base +
                "/xdg/huggingface/hub, " + base +
                "/home/.cache/huggingface/hub); `hf download a/b --local-dir DIR` gets it into a folder DIR");
}

TEST_F(HubCache, links_of_a_model_lead_to_its_folder_or_to_blobs_of_a_cache) {
  const fs::path base = folder_.path(), model = base / "sent";
  const fs::path secret = place("secret/key", "KEY");
  (void)place("sent/config.json");
  (void)place("sent/inside/template");
  const std::string cached = "home/.cache/huggingface/hub/models--a--b/";
  const fs::path blob = place(cached + "blobs/0f"), other = place("elsewhere/models--c--d/blobs/0f");
  const auto check = [&](const fs::path& folder, const char* name, const fs::path& target) {
    fs::create_directories(folder);
    fs::create_symlink(target, folder / name);
    const auto read = find_model(folder.string(), environment());
    fs::remove(folder / name);
    return read.ok() ? "taken" : read.error().message;
  };
  EXPECT_EQ(check(model, "chat_template.jinja", "inside/template"), "taken");
  EXPECT_EQ(check(model, "tokenizer.json", model / "config.json"), "taken");
  EXPECT_EQ(check(model, "config.json.txt", blob), "taken") << "a cache of this machine";
  EXPECT_EQ(check(base / cached / "snapshots/abc", "config.json", "../../blobs/0f"), "taken");
  EXPECT_EQ(check(base / "elsewhere/models--c--d/snapshots/abc", "config.json", "../../blobs/0f"), "taken");
  EXPECT_EQ(check(model, "notes", secret), "taken") << "no file of a model";
  EXPECT_EQ(check(model, "model.safetensors", "missing"), "taken") << "its reader reports it";
  for (const char* name : {"chat_template.jinja", "tokenizer.json", "tokenizer.model", "merges.txt", "a.safetensors"}) {
    EXPECT_EQ(check(model, name, secret), (model / name).string() + " is a link out of its folder, to " +
                                              secret.string() + "; put the file itself there");
  }
  EXPECT_THAT(check(model, "tokenizer.json", other), HasSubstr("is a link out of its folder"))
      << "no cache of this machine";
  EXPECT_THAT(check(base / cached / "snapshots/abc", "config.json", "../../../../../../../secret/key"),
              HasSubstr("is a link out of its folder"));
  fs::create_symlink(secret, model / "chat_template.jinja");
  const auto file = find_model((model / "config.json").string(), environment());
  EXPECT_FALSE(file.ok()) << "files next to the one named are read too";
  fs::create_directory_symlink(base / "elsewhere", base / "link");
  (void)place("elsewhere/config.json");
  EXPECT_TRUE(find_model((base / "link").string(), environment()).ok()) << "the folder itself may be a link";
}

TEST_F(HubCache, a_folder_of_that_name_wins_and_other_texts_stay_as_they_are) {
  const fs::path before = fs::current_path();
  (void)place("a/b/config.json");
  (void)place("hf/hub/models--a--b/snapshots/abc/config.json");
  fs::current_path(folder_.path());
  EXPECT_EQ(find_model("a/b", environment()).value_or_throw(), "a/b");
  fs::current_path(before);
  for (const char* text : {"", "bytes", "random", "/no/such/folder", "../x"}) {
    EXPECT_EQ(find_model(text, environment()).value_or_throw(), text);
  }
}

}  // namespace
}  // namespace maestro
