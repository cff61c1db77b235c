"""Where fetch_fineweb sends its token, and where redirects may lead.

Nothing but loopback is reached; see fetch_fineweb_test.py.
"""

import os
import unittest

import fake_hub
from fetch_testing import SHARDS, VAL, FetchTest, shard


class Token(FetchTest):
    TOKEN = {"HF_TOKEN": "hf_secret"}

    def test_sent_to_the_hub_and_not_to_where_it_redirects(self):
        cdn = self.start_hub()
        file = self.add(VAL, shard())
        file.redirect = cdn.address + "/blob?signature=1"
        cdn.files["/blob?signature=1"] = fake_hub.File(shard())
        cdn.files["/blob?signature=1"].get_faults = [fake_hub.cut(50_000)]
        self.fetch_val(env=self.TOKEN)
        self.expect_file(VAL, shard())
        self.assertEqual([r.headers.get("authorization") for r in self.hub.requests],
                         ["Bearer hf_secret"] * 3)
        self.assertEqual([r.method for r in cdn.requests], ["GET", "GET"])
        for request in cdn.requests:
            self.assertNotIn("hf_secret", str(request.headers))
        self.assertEqual(cdn.requests[1].headers["range"], "bytes=50000-")
        self.assertNotIn("hf_secret", self.text)

    def test_small_files_that_are_redirected(self):
        """Without X-Linked-Size the size is asked for where the redirect leads."""
        cdn = self.start_hub()
        self.add(VAL, shard(), large=False).redirect = cdn.address + "/blob"
        cdn.files["/blob"] = fake_hub.File(shard(), large=False)
        self.fetch_val(self.sums({VAL: shard()}), env=self.TOKEN)
        self.expect_file(VAL, shard())
        for request in cdn.requests:
            self.assertNotIn("authorization", request.headers)

    def test_kept_within_the_hub(self):
        self.add(VAL, shard(), large=False).redirect = "/renamed"
        self.hub.files["/renamed"] = fake_hub.File(shard(), large=False)
        self.fetch_val(self.sums({VAL: shard()}), env=self.TOKEN)
        for request in self.hub.requests:
            self.assertEqual(request.headers.get("authorization"), "Bearer hf_secret")

    def test_from_the_file_that_login_leaves(self):
        self.add(VAL, shard())
        os.makedirs(os.path.join(self.folder, ".cache/huggingface"))
        with open(os.path.join(self.folder, ".cache/huggingface/token"), "w", encoding="utf8") as f:
            f.write("hf_file\n")
        self.fetch_val()
        for request in self.hub.requests:
            self.assertEqual(request.headers.get("authorization"), "Bearer hf_file")

    def test_through_a_proxy_and_not_in_the_clear_to_another_machine(self):
        self.hub.files["http://hub.example" + SHARDS + VAL] = fake_hub.File(shard())
        self.fetch_val(endpoint="http://hub.example",
                       env=dict(self.TOKEN, http_proxy=self.hub.address))
        self.expect_file(VAL, shard())
        self.expect_text("the token of HF_TOKEN is not sent to http://hub.example")
        for request in self.hub.requests:
            self.assertNotIn("authorization", request.headers)

    def test_redirects_lead_to_no_other_protocol(self):
        os.makedirs(self.out)
        secret = os.path.join(self.folder, "secret")
        with open(secret, "wb") as file:
            file.write(shard())
        self.add(VAL, shard()).redirect = "file://" + secret
        self.fetch_val(code=1)
        self.expect_text("Protocol \"file\" not supported")
        self.assertFalse(os.path.exists(self.path(VAL)))

    def test_redirects_without_end(self):
        self.add(VAL, shard()).redirect = SHARDS + VAL
        self.fetch_val(code=1)
        self.expect_text("redirects")


if __name__ == "__main__":
    unittest.main()
