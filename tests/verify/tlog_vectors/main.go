// What Go's checksum database computes and believes, as another implementation than ours.
//
// Without arguments it prints ../vectors.json: Merkle roots, proofs and signed notes. Record i is the
// text "record <i>".
//
//	cd tests/verify/tlog_vectors && go run . > ../vectors.json
//
// With a verifier string and files it checks proofs that `ledger prove` has printed.
//
//	go run . VERIFIER FILE...
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
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
	if len(os.Args) > 1 {
		for _, file := range os.Args[2:] {
			checkProof(os.Args[1], file)
		}
		return
	}
	printVectors()
}

// checkProof reads an inclusion proof (C2SP tlog-proof, the record as extra data) or a consistency
// proof (C2SP tlog-witness add-checkpoint, then the old note), and says what it proves.
func checkProof(key, file string) {
	content, err := os.ReadFile(file)
	check(err)
	verifier, err := note.NewVerifier(key)
	check(err)
	head, rest, found := strings.Cut(string(content), "\n\n")
	if !found {
		panic("no empty line behind the hashes")
	}
	lines := strings.Split(head, "\n")
	if size, isConsistency := strings.CutPrefix(lines[0], "old "); isConsistency {
		// A note ends with its signatures: the old one begins behind the next empty line but one.
		parts := strings.SplitN(rest, "\n\n", 3)
		tree := open(parts[0]+"\n\n"+parts[1]+"\n", verifier)
		old := open(parts[2], verifier)
		if size != strconv.FormatInt(old.N, 10) {
			panic("another old size")
		}
		check(tlog.CheckTree(hashesOf(lines[1:]), tree.N, tree.Hash, old.N, old.Hash))
		fmt.Printf("%d continues %d\n", tree.N, old.N)
		return
	}
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		panic("not a proof")
	}
	record, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	check(err)
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	check(err)
	tree := open(rest, verifier)
	leaf := tlog.RecordHash(record)
	check(tlog.CheckRecord(hashesOf(lines[3:]), tree.N, tree.Hash, index, leaf))
	fmt.Printf("%d under %d\n", index, tree.N)
}

func open(text string, verifier note.Verifier) tlog.Tree {
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	check(err)
	lines := strings.Split(opened.Text, "\n")
	if lines[0] != verifier.Name() {
		panic("another origin")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err)
	return tlog.Tree{N: size, Hash: hashesOf(lines[2:3])[0]}
}

func hashesOf(lines []string) []tlog.Hash {
	hashes := []tlog.Hash{}
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		check(err)
		hashes = append(hashes, hash)
	}
	return hashes
}

func printVectors() {
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
