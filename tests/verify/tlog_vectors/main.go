// Prints ../vectors.json: Merkle roots, proofs and signed notes as Go's checksum database computes
// them. Record i is the text "record <i>".
//
//	cd tests/verify/tlog_vectors && go run . > ../vectors.json
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	records = 70
	name    = "example/018f3a5e-7c1b-7000-8000-000000000001"
)

var sizes = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 65, 70}

type hashes []tlog.Hash

func (h *hashes) ReadHashes(indices []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indices))
	for i, index := range indices {
		out[i] = (*h)[index]
	}
	return out, nil
}

type inclusion struct {
	Index int64    `json:"index"`
	Size  int64    `json:"size"`
	Proof []string `json:"proof"`
}

type consistency struct {
	Old   int64    `json:"old"`
	Size  int64    `json:"size"`
	Proof []string `json:"proof"`
}

type signedNote struct {
	Verifier string `json:"verifier"`
	Seed     string `json:"seed"`
	Note     string `json:"note"`
}

func main() {
	stored := &hashes{}
	for i := int64(0); i < records; i++ {
		more, err := tlog.StoredHashes(i, []byte(fmt.Sprintf("record %d", i)), stored)
		check(err)
		*stored = append(*stored, more...)
	}
	root := func(size int64) tlog.Hash {
		hash, err := tlog.TreeHash(size, stored)
		check(err)
		return hash
	}
	var roots, inclusions, consistencies, notes []any
	for size := int64(0); size <= records; size++ {
		hash := root(size)
		roots = append(roots, hex.EncodeToString(hash[:]))
	}
	for _, size := range sizes {
		for i := int64(0); i < size; i++ {
			if size > 17 && i%5 != 0 && i != size-1 {
				continue
			}
			proof, err := tlog.ProveRecord(size, i, stored)
			check(err)
			inclusions = append(inclusions, inclusion{i, size, texts(proof)})
			tree, err := tlog.ProveTree(size, i+1, stored)
			check(err)
			consistencies = append(consistencies, consistency{i + 1, size, texts(tree)})
		}
	}
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(name, public)
	check(err)
	secret := base64.StdEncoding.EncodeToString(append([]byte{1}, seed...))
	id := strings.SplitN(verifier, "+", 3)[1]
	signer, err := note.NewSigner("PRIVATE+KEY+" + name + "+" + id + "+" + secret)
	check(err)
	for _, size := range []int64{1, 3, records} {
		hash := root(size)
		text := fmt.Sprintf("%s\n%d\n%s\n", name, size, base64.StdEncoding.EncodeToString(hash[:]))
		signed, err := note.Sign(&note.Note{Text: text}, signer)
		check(err)
		notes = append(notes, signedNote{verifier, hex.EncodeToString(seed), string(signed)})
	}
	fmt.Println("{")
	list("roots", roots, ",")
	list("inclusion", inclusions, ",")
	list("consistency", consistencies, ",")
	list("notes", notes, "")
	fmt.Println("}")
}

func list(name string, items []any, end string) {
	fmt.Printf("%q: [\n", name)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for i, item := range items {
		if i > 0 {
			fmt.Print(",")
		}
		check(encoder.Encode(item))
	}
	fmt.Printf("]%s\n", end)
}

func texts(proof []tlog.Hash) []string {
	out := []string{}
	for _, hash := range proof {
		out = append(out, hex.EncodeToString(hash[:]))
	}
	return out
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
