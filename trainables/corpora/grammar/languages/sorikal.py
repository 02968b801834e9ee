"""Sorikal: verb-final and agglutinative, with vowel harmony, five cases, postpositions and evidentials."""

from trainables.corpora.grammar.description import Contrast, Language

SORIKAL = Language(
    name="sorikal",
    script="cyrillic",
    segments={"C": "b d g h j k l m n p r s t v z č š", "F": "e i ö ü", "B": "a ı o u", "L": "n r l k t z š"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "number": "singular singular singular plural plural",
        "harmony": "front back",
        "case": "nominative accusative | genitive locative ablative",
        "person": "third | first second",
        "evidence": "witnessed witnessed reported future | participial",
        "valency": "intransitive transitive | quotative",
    },
    lexicon={
        "noun front": "220 CFL CFLCFL CFCFL",
        "noun back": "220 CBL CBLCBL CBCBL",
        "verb intransitive front": "50 CFL FL CFCFL",
        "verb intransitive back": "50 CBL BL CBCBL",
        "verb transitive front": "80 CFL FL CFCFL",
        "verb transitive back": "80 CBL BL CBCBL",
        "verb quotative front": "5 CFL",
        "verb quotative back": "5 CBL",
        "adjective": "140 CFCF CBCB CFLCF CBLCB",
        "adverb": "60 CBCBča CFCFče",
        "postposition genitive": "4 CBCa CFCe",
        "postposition ablative": "4 CBCa CFCe",
        "quantifier singular": "9 CFC CBC",
        "quantifier plural": "3 CFCF CBCB",
        "stance witnessed": "3 BCBča",
        "stance reported": "3 BCBča",
    },
    paradigms={
        "noun": (
            """
                        front  back
            singular      Ø      Ø
            plural      -ler   -lar
            """,
            """
                        front  back
            nominative    Ø      Ø
            accusative   -i     -ı
            genitive     -in    -ın
            locative     -de    -da
            ablative     -den   -dan
            """,
        ),
        "verb": (
            """
                        front   back
            witnessed    -di     -dı
            reported     -mise   -mısa
            future       -ceri   -carı
            participial  -en     -an
            """,
            """
                              front  back
            first  singular    -m     -m
            second singular    -n     -n
            third  singular     Ø      Ø
            first  plural      -k     -k
            second plural     -niz   -nız
            third  plural     -ler   -lar
            """,
        ),
        "speaker": (
            """
                        singular plural
            first         ben     biz
            second        sen     siz
            """,
        ),
        "pronoun": (
            """
                        nominative accusative
            singular       ol         onı
            plural         ollar      onları
            """,
        ),
        "reflexive": (
            """
                        singular   plural
            accusative   kendini   kendilerini
            """,
        ),
    },
    rules={
        "episode": """
            4 assertion(number referent harmony) resumption(number) assertion(number referent harmony)
            2 assertion(number referent harmony) resumption(number) resumption(number)
            2 assertion conversation assertion
            1 question(number referent harmony) resumption(number)
        """,
        "assertion": """
            3 intransitive(number referent harmony)
            6 transitive(number referent harmony)
            2 located(number referent harmony)
            2 hearsay(number referent harmony)
            2 quantified
            2 reflexive_clause(number referent harmony)
            1 quotation(number referent harmony)
            1 coordinated
        """,
        "intransitive": "1 subject(number referent harmony) adverb? verb(intransitive third number) .",
        "transitive": "1 subject(number referent harmony) object verb(transitive third number) .",
        "located": "1 subject(number referent harmony) pp verb(intransitive third number) .",
        "hearsay": """
            1 stance(witnessed) , subject(number referent harmony) object
                verb(transitive third number witnessed) .
            1 stance(reported) , subject(number referent harmony) object
                verb(transitive third number reported) .
        """,
        "quantified": """
            1 quantifier(number) noun(nominative number) adverb? verb(intransitive third number) .
        """,
        "reflexive_clause": """
            1 subject(number referent harmony) reflexive(accusative number) verb(transitive third number) .
        """,
        "quotation": """
            1 subject(number referent harmony) , np(nominative number2) object
                verb(transitive third number2) 'dip' , verb(quotative third number) .
        """,
        "coordinated": """
            1 np(nominative protagonist) 've' np(nominative companion) adverb?
                verb(intransitive third plural) .
        """,
        "resumption": """
            3 pronoun(nominative number) object verb(transitive third number) .
            2 pronoun(nominative number) adverb? verb(intransitive third number) .
            2 pronoun(nominative number) locative verb(intransitive third number) .
            1 pronoun(nominative number) object 'tegil' verb(transitive third number) .
        """,
        "conversation": """
            2 speaker(first number) object verb(transitive first number) .
            1 speaker(first number) locative verb(intransitive first number) .
            1 speaker(second number) object verb(transitive second number) 'mı' ?
        """,
        "question": "1 subject(number referent harmony) object verb(transitive third number) 'mı' ?",
        "subject": "1 np(nominative number referent harmony)",
        "object": """
            4 np(accusative)
            1 participle_phrase noun(accusative)
        """,
        "participle_phrase": "1 noun(accusative) verb(transitive third singular participial)",
        "np": """
            4 noun(case number referent harmony)
            3 adjective noun(case number referent harmony)
        """,
        "locative": "1 np(locative)",
        "pp": """
            1 np(genitive) postposition(genitive)
            1 np(ablative) postposition(ablative)
        """,
    },
    contrasts=(
        Contrast(
            "subject–verb agreement in number across an object", "transitive", "verb", "number", attractor="object noun"
        ),
        Contrast("vowel harmony of case suffixes", "transitive", "object noun", "harmony"),
        Contrast("vowel harmony of verb suffixes", "intransitive", "verb", "harmony"),
        Contrast("postposition government", "located", "pp noun", "case", values="genitive ablative"),
        Contrast("case marking", "transitive", "* noun", "case", values="nominative accusative"),
        Contrast("evidential concord", "hearsay", "verb", "evidence", values="witnessed reported"),
        Contrast("number after a quantifier", "quantified", "noun", "number"),
        Contrast("reflexive–antecedent agreement in number", "reflexive_clause", "reflexive", "number"),
        Contrast("order of noun and postposition", "located", "pp noun"),
    ),
)
